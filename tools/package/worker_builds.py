"""The builds of the worker for each LibTorch, as the wheel and the packages have them.

A build is a folder of ./dev package: build/worker-2.11-cpu has that for torch 2.11 without CUDA, and worker-2.11-cuda13 that for
CUDA 13. Installed they are muster_hpc_worker/2.11/cpu and so on, where worker/starter/torch_beside.cpp looks.
"""

import re
import subprocess

from . import elf

FOLDER = "muster_hpc_worker/"
PROGRAMS = ["muster-worker", "muster-infer"]
# What manylinux_2_34 may ask for (PEP 600); RHEL 9 has them.
FLOORS = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13), "GCC": (7, 0, 0)}
CXX = {"libstdc++.so.6", "libgcc_s.so.1"}
ALLOCATOR = re.compile("^_Z(n[wa]|d[la])|alloc|free|memalign")
TORCH = {"libc10.so", "libtorch_cpu.so", "libc10_cuda.so", "libtorch_cuda.so", "libcudart.so.13"}


def versions_of(builds):
    """The versions of torch that have a build, in ascending order: [(2, 11), (2, 15)]."""
    return sorted({tuple(map(int, build.name.split("-")[1].split("."))) for build in builds})


def stripped(file, work, *options):
    copy = work / file.name
    subprocess.run(["strip", *options, "-o", copy, file], check=True)
    return copy.read_bytes()


def programs(builds, work):
    """The programs of these builds by their places, each checked: (muster_hpc_worker/2.11/cpu/muster-worker, bytes)."""
    for folder in builds:
        _, torch, kind = folder.name.split("-")
        for name in PROGRAMS:
            program = folder / "bin" / name
            elf.check(program, FLOORS, CXX | TORCH)
            others = sorted(symbol for symbol in elf.shown(program) if not ALLOCATOR.search(symbol))
            if others:
                raise SystemExit(f"package: {program} shows LibTorch {', '.join(others[:5])}, and may show tcmalloc alone (tools/cmake/allocator.map)")
            # The table of symbols stays, by which the stack of a rank that hangs has names.
            yield f"{FOLDER}{torch}/{kind}/{name}", stripped(program, work, "--strip-debug")


def starters(builds, work):
    """What lies in the folder bin: (name, bytes)."""
    starter = builds[-1] / "bin/muster-starter"
    elf.check(starter, FLOORS)
    return [(name, stripped(starter, work)) for name in PROGRAMS]
