"""Goal: ./dev package python makes a wheel that installs without a network, and the same wheel each time. The wheel of the worker asks
pip for a torch that it fits.

Method: the real script in a copy of the sources; a fresh virtual environment.
"""

import importlib.metadata
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest
import zipfile

from pip._vendor.packaging.specifiers import SpecifierSet

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from package import worker_builds, worker_wheel


class Wheel(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()
        self.project = self.copy("project")

    def copy(self, name):
        project = self.folder / name
        (project / "tools").mkdir(parents=True)
        for file in ("dev", "tools/setup.sh", "tools/python_wheel.py", "LICENSE"):
            shutil.copy(ROOT / file, project / file)
        shutil.copytree(ROOT / "python", project / "python", ignore=shutil.ignore_patterns("__pycache__"))
        return project

    def package(self, *arguments, project=None):
        return subprocess.run([(project or self.project) / "dev", "package", *arguments], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=100)

    def wheel(self, project=None):
        done = self.package("python", project=project)
        self.assertEqual(done.returncode, 0, done.stderr)
        [wheel] = ((project or self.project) / "build" / "python").iterdir()
        self.assertEqual(done.stdout.strip(), f"build/python/{wheel.name}")
        return wheel

    def test_it_installs_into_a_fresh_environment_without_a_network(self):
        wheel = self.wheel()
        environment = self.folder / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
        python = environment / "bin" / "python"
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON", "MUSTER_"))}
        subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps", "--quiet",
                        "--disable-pip-version-check", wheel], check=True, env=clean)
        code = ("import importlib.metadata as metadata, muster; run = muster.init(); run.log(1, loss=2.0); "
                "assert muster.submit and muster.Job(7).id == 7; print(muster.__file__); print(metadata.version('muster-hpc'))")
        done = subprocess.run([python, "-I", "-W", "error", "-c", code], capture_output=True, text=True, env=clean)
        self.assertEqual(done.returncode, 0, done.stderr)
        file, version = done.stdout.split()
        self.assertTrue(pathlib.Path(file).is_relative_to(environment), file)
        project = tomllib.loads((ROOT / "python" / "pyproject.toml").read_text())["project"]
        self.assertEqual(version, project["version"])
        [installed] = importlib.metadata.distributions(name="muster-hpc", path=[str(next((environment / "lib").glob("python*")) / "site-packages")])
        wanted = {(group, name, target) for group, names in project.get("entry-points", {}).items() for name, target in names.items()}
        self.assertEqual({(point.group, point.name, point.value) for point in installed.entry_points}, wanted)
        self.assertEqual(installed.metadata["Requires-Python"], project["requires-python"])

    def test_it_holds_the_packages_and_nothing_else(self):
        (self.project / "python" / "muster" / "__pycache__").mkdir()
        (self.project / "python" / "muster" / "__pycache__" / "x.pyc").write_text("")
        (self.project / "python" / "muster" / "notes.txt").write_text("")
        with zipfile.ZipFile(self.wheel()) as archive:
            self.assertIsNone(archive.testzip())
            names = {name for name in archive.namelist() if ".dist-info/" not in name}
        packages = tomllib.loads((ROOT / "python" / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
        wanted = {file.relative_to(ROOT / "python").as_posix() for package in packages
                  for file in (ROOT / "python" / package.replace(".", "/")).glob("*.py")}
        self.assertEqual(names, wanted | {"muster/py.typed"})

    def test_the_same_sources_give_the_same_bytes(self):
        first = self.wheel().read_bytes()
        other = self.copy("elsewhere")
        for file in other.rglob("*"):
            os.utime(file, (1, 1))
        self.assertEqual(self.wheel(other).read_bytes(), first)
        self.assertEqual(self.wheel().read_bytes(), first)

    def test_what_is_wrong_is_told_in_a_line(self):
        for arguments in ([], ["rust"], ["python", "now"]):
            done = self.package(*arguments)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertRegex(done.stderr, "package: .*want archives, wheels, deb, rpm, images, worker, all or python; see ./dev help")
        file = self.project / "python" / "pyproject.toml"
        text = file.read_text()
        for old, new, said in (("version =", "edition =", "project.edition: tools/python_wheel.py does not know this key"),
                               ("name =", "dependencies = [", "package:"),
                               ('packages = ["muster"', 'packages = ["mustard"', "mustard: there is no Python file in")):
            file.write_text(text.replace(old, new, 1))
            done = self.package("python")
            self.assertEqual(done.returncode, 1, new)
            self.assertIn(said, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)


class WorkerWheel(unittest.TestCase):
    """The wheel muster-hpc-worker (tools/package/worker_wheel.py)."""

    def test_pip_takes_the_versions_of_torch_that_have_a_build(self):
        builds = [pathlib.Path(f"build/worker-{name}") for name in ("2.15-cpu", "2.11-cuda13", "2.12-cpu", "2.11-cpu")]
        versions = worker_builds.versions_of(builds)
        self.assertEqual(versions, [(2, 11), (2, 12), (2, 15)])
        name, asked = worker_wheel.requirement(versions)[:5], SpecifierSet(worker_wheel.requirement(versions)[5:])
        self.assertEqual(name, "torch")
        for version, fits in (("2.11.0", True), ("2.11.1+cpu", True), ("2.12.1", True), ("2.15.9+cu132", True), ("2.10.9", False),
                              ("2.13.0", False), ("2.14.1+cpu", False), ("2.16.0", False), ("3.11.0", False)):
            self.assertEqual(asked.contains(version), fits, version)
        self.assertEqual(worker_wheel.requirement([(2, 15)]), "torch>=2.15,<2.16")

    def test_the_extra_asks_for_the_worker_of_the_same_version(self):
        project = tomllib.loads((ROOT / "python" / "pyproject.toml").read_text())["project"]
        self.assertEqual(project["optional-dependencies"]["worker"], [f"{worker_wheel.NAME}=={project['version']}"])
        self.assertIn(f"project(muster VERSION {project['version']} ", (ROOT / "CMakeLists.txt").read_text())


if __name__ == "__main__":
    unittest.main()
