"""The wheel of the worker: muster-worker and muster-infer for each LibTorch that has a build, and their starter."""

import tomllib

import python_wheel

from . import worker_builds

NAME = "muster-hpc-worker"


def requirement(versions):
    """Of pip: torch>=2.11,<2.14,!=2.12.* for 2.11 and 2.13."""
    (major, first), (_, last) = versions[0], versions[-1]
    without = [f"!={major}.{minor}.*" for minor in range(first, last) if (major, minor) not in versions]
    return ",".join([f"torch>={major}.{first}", f"<{major}.{last + 1}", *without])


def build(builds, python, output, version, platform, work):
    """Writes the wheel into `output`. `python`: the folder whose pyproject.toml asks for it."""
    project = tomllib.loads((python / "pyproject.toml").read_text())["project"]
    needed = f"{NAME}=={version}"
    if needed not in project["optional-dependencies"]["worker"]:
        raise SystemExit(f"package: pyproject.toml: optional-dependencies.worker: want {needed}")
    ours = {"name": NAME, "version": version, "description": "The worker of muster: trains and uses models with the LibTorch of the package torch",
            "requires-python": project["requires-python"], "dependencies": [requirement(worker_builds.versions_of(builds))]}
    files = {**python_wheel.licence_of(python, ours), **dict(worker_builds.programs(builds, work))}
    starters = list(worker_builds.starters(builds, work))
    return python_wheel.write(output, ours, files, platform, starters, executable=worker_builds.FOLDER)
