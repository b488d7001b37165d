"""The wheel of the worker: muster-worker and muster-infer for each LibTorch that has a build, and their starter.

A build is a folder of ./dev package: build/worker-2.11-cpu has that for torch 2.11 without CUDA, and worker-2.11-cuda13 that for
CUDA 13. In the wheel they are muster_hpc_worker/2.11/cpu and so on, where worker/starter/torch_beside.cpp looks.
"""

import re
import subprocess
import tomllib

import python_wheel

from . import elf

NAME = "muster-hpc-worker"
PACKAGE = "muster_hpc_worker/"
PROGRAMS = ["muster-worker", "muster-infer"]
# A wheel for glibc 2.34 may ask for these (PEP 600); RHEL 9 has them.
FLOORS = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13), "GCC": (7, 0, 0)}
CXX = {"libstdc++.so.6", "libgcc_s.so.1"}
ALLOCATOR = re.compile("^_Z(n[wa]|d[la])|alloc|free|memalign")
TORCH = {"libc10.so", "libtorch_cpu.so", "libc10_cuda.so", "libtorch_cuda.so", "libcudart.so.13"}


def versions_of(builds):
    """The versions of torch that have a build, in ascending order: [(2, 11), (2, 15)]."""
    return sorted({tuple(map(int, build.name.split("-")[1].split("."))) for build in builds})


def requirement(versions):
    """Of pip: torch>=2.11,<2.14,!=2.12.* for 2.11 and 2.13."""
    (major, first), (_, last) = versions[0], versions[-1]
    without = [f"!={major}.{minor}.*" for minor in range(first, last) if (major, minor) not in versions]
    return ",".join([f"torch>={major}.{first}", f"<{major}.{last + 1}", *without])


def stripped(file, work, *options):
    copy = work / file.name
    subprocess.run(["strip", *options, "-o", copy, file], check=True)
    return copy.read_bytes()


def build(builds, python, output, version, platform, work):
    """Writes the wheel into `output`. `python`: the folder whose pyproject.toml asks for it."""
    project = tomllib.loads((python / "pyproject.toml").read_text())["project"]
    needed = f"{NAME}=={version}"
    if needed not in project["optional-dependencies"]["worker"]:
        raise SystemExit(f"package: pyproject.toml: optional-dependencies.worker: want {needed}")
    ours = {"name": NAME, "version": version, "description": "The worker of muster: trains and uses models with the LibTorch of the package torch",
            "requires-python": project["requires-python"], "dependencies": [requirement(versions_of(builds))]}
    files = python_wheel.licence_of(python, ours)
    for folder in builds:
        _, torch, kind = folder.name.split("-")
        for name in PROGRAMS:
            program = folder / "bin" / name
            elf.check(program, FLOORS, CXX | TORCH)
            others = sorted(symbol for symbol in elf.shown(program) if not ALLOCATOR.search(symbol))
            if others:
                raise SystemExit(f"package: {program} shows LibTorch {', '.join(others[:5])}, and may show tcmalloc alone (tools/cmake/allocator.map)")
            # The table of symbols stays, by which the stack of a rank that hangs has names.
            files[f"{PACKAGE}{torch}/{kind}/{name}"] = stripped(program, work, "--strip-debug")
    starter = builds[-1] / "bin/muster-starter"
    elf.check(starter, FLOORS)
    starters = [(name, stripped(starter, work)) for name in PROGRAMS]
    return python_wheel.write(output, ours, files, platform, starters, executable=PACKAGE)
