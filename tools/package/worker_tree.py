"""The worker for those without pip: the newest builds and the LibTorch that they were built with, without its half for CUDA.

The tree fits into that of an archive, and into /usr. torch_beside.cpp finds lib/muster there.
"""

import shutil

from . import elf, worker_builds

# PyPI's libtorch_cpu asks for these two libraries of CUDA, also where there is no GPU.
LIBRARIES = ["torch/lib/libtorch_cpu.so", "torch/lib/libc10.so", "torch/lib/libgomp.so.1", "nvidia/cu13/lib/libcudart.so.13",
             "nvidia/cu13/lib/libcupti.so.13"]


def build(builds, libtorch, licence, folder, work):
    """Makes the tree, and returns the version of torch. `libtorch`: the folder into which ./dev package unpacked its wheel."""
    newest = worker_builds.versions_of(builds)[-1]
    ours = [build for build in builds if worker_builds.versions_of([build]) == [newest]]
    for place, data in (*((f"lib/muster/{place}", data) for place, data in worker_builds.programs(ours, work)),
                        *((f"bin/{name}", data) for name, data in worker_builds.starters(ours, work))):
        file = folder / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        file.chmod(0o755)
    torch = folder / "lib/muster/torch"
    (torch / "lib").mkdir(parents=True)
    for name in LIBRARIES:
        elf.check(shutil.copy(libtorch / name, torch / "lib"), worker_builds.FLOORS,
                  worker_builds.CXX | {name.split("/")[-1] for name in LIBRARIES} | {"libutil.so.1"})
    versions = dict(info.name.removesuffix(".dist-info").split("-") for info in libtorch.glob("*.dist-info"))
    version = versions["torch"]
    (torch / "version.py").write_text(f"# LibTorch of torch {version}, without its half for CUDA\n__version__ = '{version}'\ncuda = None\n")
    documents = folder / "share/doc/muster-worker"
    documents.mkdir(parents=True)
    shutil.copy(licence, documents / "LICENSE")
    for name in ("torch", "nvidia_cuda_runtime", "nvidia_cuda_cupti"):
        shutil.copytree(libtorch / f"{name}-{versions[name]}.dist-info/licenses", documents / name)
    return version

