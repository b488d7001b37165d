"""Archives that are unpacked anywhere: one for a glibc of the floor or newer, one with its own loader and C library."""

import gzip
import os
import pathlib
import shutil
import subprocess
import tarfile

from . import elf

FOLDER = pathlib.Path(__file__).resolve().parent
LOADER = "ld-linux-x86-64.so.2"
# What the programs ask for, and what modules of the host's name service ask for that were made for an older glibc.
C_LIBRARY = [LOADER, "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libresolv.so.2",
             "libnss_files.so.2", "libnss_dns.so.2"]


def add(tar, folder, prefix):
    """Adds what is in a folder, in order and without owners and times: the same files give the same bytes."""
    def plain(entry):
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        entry.mtime = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
        entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
        return entry

    for path in [*([folder] if prefix.name else []), *sorted(folder.rglob("*"))]:
        tar.add(path, prefix / path.relative_to(folder), recursive=False, filter=plain)


def pack(folder, archive):
    """A .tar.gz of a folder, with the folder's name before all names."""
    part = archive.with_name(archive.name + ".part")
    with open(part, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
        add(tar, folder, pathlib.PurePath(folder.name))
    part.rename(archive)
    return archive


def with_own_libc(plain, folder):
    """A copy of the plain tree whose programs lie beside their own loader, behind starters of their names."""
    shutil.copytree(plain, folder, symlinks=True)
    library = folder / "lib" / "muster"
    library.mkdir(parents=True)
    programs = sorted((folder / "bin").iterdir())
    for program in programs:
        program.rename(library / program.name)
    starter = programs[0]
    subprocess.run(["gcc", "-static", "-Os", "-s", "-Wall", "-Wextra", "-Werror", FOLDER / "start.c", "-o", starter], check=True)
    for program in programs[1:]:
        os.link(starter, program)  # one copy in the archive
    for name in C_LIBRARY:
        shutil.copy2(pathlib.Path("/lib/x86_64-linux-gnu") / name, library / name)
    return folder
