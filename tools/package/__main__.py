"""Builds what people install, and tests what it built. ./dev package calls it after the programs are built.

Usage: python3 -B -m package KIND... --build FOLDER [--workers FOLDER...] --output FOLDER, from tools/
KIND: archives, wheels, deb, rpm, images, worker, or all. Prints each file with its size and what it needs; all also writes these
into docs/install.md. --workers: the builds of the worker (worker_builds.py), and --libtorch: the newest LibTorch; wheels, worker
and all need them.
"""

import argparse
import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from . import archive, debian, elf, images, proof, rpm, worker_builds, worker_proof, worker_tree, worker_wheel

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLOOR = (2, 34)  # RHEL 9; Ubuntu 22.04 has 2.35
PLATFORM = "manylinux_2_34_x86_64"
MOST_WHEEL_BYTES = 25_000_000


def version_of(build):
    """The version that CMake gave the programs."""
    for line in (build / "CMakeCache.txt").read_text().splitlines():
        if line.startswith("CMAKE_PROJECT_VERSION:"):
            return line.split("=")[1]
    raise SystemExit(f"package: {build} is no build folder")


def installed(build, root, prefix):
    """The installed tree below `root`, with stripped programs."""
    subprocess.run(["cmake", "--install", build, "--prefix", prefix, "--component", "control", "--strip"], check=True,
                   stdout=subprocess.DEVNULL, env={**os.environ, "DESTDIR": str(root)})
    return root / prefix.lstrip("/")


def write_table(told):
    """Puts sizes and needs into docs/install.md."""
    page = ROOT / "docs/install.md"
    rows = "".join(f"| `{name}` | {megabytes:.1f} MB | {what} |\n" for name, megabytes, what in told)
    text, count = re.subn(r"(\| file \| size \| needs \|\n\|---\|---\|---\|\n)(?:\|.*\n)*", lambda found: found.group(1) + rows, page.read_text())
    if count != 1:
        raise SystemExit("package: docs/install.md has no table of files, sizes and needs")
    page.write_text(text)


class Package:
    def __init__(self, build, workers, libtorch, output, work):
        self.build, self.workers, self.libtorch, self.output, self.work = build, workers, libtorch, output, work
        self.files = []  # name, megabytes, what it needs
        self.version = version_of(build)
        self.name = f"muster-{self.version}-linux-x86_64"

    def told(self, file, what):
        self.files.append((file.name, file.stat().st_size / 1e6, what))
        print(f"{file.name}  {self.files[-1][1]:.1f} MB  {what}", flush=True)
        return file

    def tree(self):
        """The tree of an archive, made once."""
        folder = self.work / self.name
        if not folder.exists():
            installed(self.build, self.work / "any", "/usr").rename(folder)
            for program in filter(elf.is_elf, sorted((folder / "bin").iterdir())):
                elf.check(program, {"GLIBC": FLOOR})
        return folder

    def archives(self):
        plain = self.told(archive.pack(self.tree(), self.output / f"{self.name}.tar.gz"), f"glibc {elf.text_of(FLOOR)} or newer")
        folder = archive.with_own_libc(self.tree(), self.work / f"{self.name}-own-libc")
        own = self.told(archive.pack(folder, self.output / f"{folder.name}.tar.gz"), "any Linux, with its own C library")
        proof.archives(plain, own, self.work)
        proof.modules(self.tree(), self.work)

    def wheels(self):
        build = [sys.executable, "-B", ROOT / "tools/python_wheel.py", ROOT / "python", self.output]
        programs = ["--programs", self.tree() / "bin", "--platform", PLATFORM]
        wheel = pathlib.Path(subprocess.run([*build, *programs], check=True, capture_output=True, text=True).stdout.strip())
        self.told(wheel, f"glibc {elf.text_of(FLOOR)} or newer, any Python from 3.9 on")
        if wheel.stat().st_size > MOST_WHEEL_BYTES:
            raise SystemExit(f"package: {wheel.name} has {wheel.stat().st_size} bytes, and may have {MOST_WHEEL_BYTES}")
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)  # for machines that the other one does not fit
        proof.wheel(wheel, PLATFORM, self.work)
        versions = worker_builds.versions_of(self.workers)
        worker = worker_wheel.build(self.workers, ROOT / "python", self.output, self.version, PLATFORM, self.work)
        self.told(worker, f"torch {' or '.join(elf.text_of(version) for version in versions)}, "
                          f"glibc {elf.text_of(FLOOR)} and libstdc++ of GCC 11 or newer")
        worker_proof.prove(wheel, worker, versions, PLATFORM, self.work)

    @functools.cached_property
    def debian_package(self):
        root = self.work / "deb"
        installed(self.build, root, "/usr")
        return debian.build(root, self.output, self.version, elf.text_of(FLOOR))

    def deb(self):
        package = self.debian_package
        self.told(package, f"glibc {elf.text_of(FLOOR)} or newer, systemd where it is there")
        proof.deb(package, self.work)

    @functools.cached_property
    def rpm_package(self):
        root = self.work / "rpm"
        installed(self.build, root, "/usr")
        return rpm.build(root, self.output, self.version, elf.text_of(FLOOR))

    def rpm(self):
        package = self.rpm_package
        self.told(package, f"glibc {elf.text_of(FLOOR)} or newer, systemd where it is there")
        proof.rpm(package, self.work)

    def images(self):
        image = images.build([self.debian_package], self.output, self.work, self.version)
        self.told(image, "podman, docker, Kubernetes or Apptainer")
        proof.image(image, self.version, self.work)

    def worker(self):
        glibc = elf.text_of(FLOOR)
        folder = self.work / "worker" / self.name  # unpacked beside the archive of the same name
        torch = worker_tree.build(self.workers, self.libtorch, ROOT / "LICENSE", folder, self.work)
        needs = f"{{}}, glibc {glibc} and libstdc++ of GCC 11 or newer"
        packed = self.told(archive.pack(folder, self.output / f"muster-worker-{self.version}-linux-x86_64.tar.gz"), needs.format("the archive of muster"))
        root = self.work / "worker-root"
        root.mkdir()
        folder.rename(root / "usr")
        package = rpm.build_worker(root, self.output, self.version, glibc, torch)
        self.told(package, needs.format("the package muster"))
        deb = debian.pack(root, self.output, debian.WORKER_CONTROL, version=self.version, glibc=glibc, torch=torch)
        self.told(deb, needs.format("the package muster"))
        shutil.rmtree(root)
        image = images.build([self.debian_package, deb], self.output, self.work, self.version, "muster-worker", ["libstdc++6", "libgcc-s1"])
        self.told(image, "podman, docker, Kubernetes or Apptainer")
        plain = archive.pack(self.tree(), self.work / f"{self.name}.tar.gz")
        worker_proof.archive(plain, packed, torch, self.work)
        worker_proof.deb(self.debian_package, deb, torch, self.work)
        worker_proof.rpm(self.rpm_package, package, torch, self.work)
        worker_proof.image(image, self.version, torch, self.work)


KINDS = ["archives", "wheels", "deb", "rpm", "images", "worker"]


def main():
    parser = argparse.ArgumentParser(prog="package")
    parser.add_argument("kinds", nargs="+", choices=[*KINDS, "all"])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--workers", type=pathlib.Path, nargs="+", default=[])
    parser.add_argument("--libtorch", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    kinds = KINDS if "all" in given.kinds else given.kinds
    with tempfile.TemporaryDirectory(prefix="muster-package-") as work:
        package = Package(given.build.resolve(), [folder.resolve() for folder in given.workers], given.libtorch, given.output.resolve(), pathlib.Path(work))
        for kind in kinds:
            getattr(package, kind)()
        if kinds == KINDS:
            write_table(package.files)


if __name__ == "__main__":
    main()
