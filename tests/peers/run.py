"""Runs a test of Python packages under the Python that has them, with muster's own package installed beside it.

Usage: run.py PEERS_FOLDER MODULES TEST.py [ARGUMENT]...

MODULES: what the test imports, with commas. The Python is MUSTER_PEER_PYTHON, the one that ./dev test installs into
PEERS_FOLDER, or python3. Without one that has the modules the exit status is 77: skipped.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def find_python(peers_folder, modules):
    chosen = os.environ.get("MUSTER_PEER_PYTHON")
    for python in [chosen] if chosen is not None else [f"{peers_folder}/bin/python", "python3"]:
        if not python or not shutil.which(python):
            continue
        looked = subprocess.run([python, "-c", f"import setuptools, {modules}"], capture_output=True, text=True)
        if looked.returncode == 0:
            return shutil.which(python)
        print(f"{python}: {looked.stderr.strip().splitlines()[-1]}", file=sys.stderr)
    return None


def install(python, folder):
    """muster's package as pip installs it, so that its entry points are found. A copy is built: building writes files."""
    source = folder / "source"
    shutil.copytree(ROOT / "python", source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"))
    done = subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index",
                           "--no-build-isolation", "--target", folder / "site", source], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"installing {ROOT / 'python'} failed: {done.stdout}{done.stderr}")
    return folder / "site"


def main():
    peers_folder, modules, test, *arguments = sys.argv[1:]
    python = find_python(peers_folder, modules)
    if python is None:
        print(f"skipped: no Python with {modules}; ./dev setup --peers installs one", file=sys.stderr)
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        site = install(python, pathlib.Path(folder))
        env = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run([python, test, *arguments], env=env).returncode


if __name__ == "__main__":
    sys.exit(main())
