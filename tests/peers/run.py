"""Runs a test of Python packages under the Python that has them.

Usage: run.py PEERS_FOLDER PACKAGE_FOLDER MODULES TEST.py [ARGUMENT]...

MODULES: what the test imports, with commas. With `muster` among them the test sees muster's own package as pip installs it; it is
installed once for all tests, below PACKAGE_FOLDER. With `newest` among them the test sees the packages of PEERS_FOLDER-newest, such
as the newest transformers, before all others; without it a test finds that folder in MUSTER_NEWEST_PEERS. The Python is MUSTER_PEER_PYTHON, the one that ./dev test installs into
PEERS_FOLDER, or python3. Without one that has the modules the exit status is 77: skipped.
"""

import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

SKIPPED = 77
SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent / "python"
# Importing the modules would take seconds.
LOOK = "import sys; from importlib.util import find_spec; print(*(name for name in sys.argv[1:] if find_spec(name) is None))"


def find_python(peers_folder, modules):
    chosen = os.environ.get("MUSTER_PEER_PYTHON")
    for python in [chosen] if chosen is not None else [f"{peers_folder}/bin/python", "python3"]:
        if not python or not shutil.which(python):
            continue
        looked = subprocess.run([python, "-c", LOOK, *modules], capture_output=True, text=True)
        missing = looked.stdout.split()
        if looked.returncode == 0 and not missing:
            return shutil.which(python)
        print(f"{python}: {f'No module named {missing[0]!r}' if missing else looked.stderr.strip().splitlines()[-1]}", file=sys.stderr)
    return None


def files_of_package():
    """Those that a build of the package may read."""
    for path in sorted(SOURCE.rglob("*")):
        inside = path.relative_to(SOURCE)
        if path.is_file() and not any(part in ("__pycache__", "build") or part.endswith(".egg-info") for part in inside.parts):
            yield inside, path.read_bytes()


def installed(python, folder):
    """The folder of muster's package as pip installs it, so that its entry points are found. It is below one that has the name of
    what was installed, and is complete once it has that name. Tests that start at the same time wait for the first one."""
    files = list(files_of_package())
    name = hashlib.sha256(repr((python, files)).encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / name).exists():
            install(python, files, folder / "unfinished")
            (folder / "unfinished").rename(folder / name)
    return folder / name / "site"


def install(python, files, folder):
    """A copy is built, because building writes files."""
    shutil.rmtree(folder, ignore_errors=True)  # of a test that was killed
    for inside, content in files:
        path = folder / "source" / inside
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    done = subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index",
                           "--no-build-isolation", "--target", folder / "site", folder / "source"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"installing {SOURCE} failed: {done.stdout}{done.stderr}")


def main():
    peers_folder, package_folder, words, test, *arguments = sys.argv[1:]
    modules = words.split(",")
    wants_package, wants_newest = "muster" in modules, "newest" in modules
    newest = pathlib.Path(f"{peers_folder}-newest")
    if wants_newest and not (newest / ".complete").exists():
        print(f"skipped: {newest} is not installed; ./dev setup --peers installs it", file=sys.stderr)
        return SKIPPED
    found = [name for name in modules if name not in ("muster", "newest")]
    python = find_python(peers_folder, [*found, *(["setuptools"] if wants_package else [])])
    if python is None:
        print(f"skipped: no Python with {words}; ./dev setup --peers installs one", file=sys.stderr)
        return SKIPPED
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    env.pop("PYTHONPATH", None)
    if wants_package:
        env["PYTHONPATH"] = str(installed(python, pathlib.Path(package_folder)))
    env["MUSTER_NEWEST_PEERS"] = str(newest)
    if wants_newest:
        env["PYTHONPATH"] = os.pathsep.join([str(newest), *filter(None, [env.get("PYTHONPATH")])])
    return subprocess.run([python, test, *arguments], env=env).returncode


if __name__ == "__main__":
    sys.exit(main())
