"""What a program asks of the system that it runs on: libraries, and the oldest glibc that has its symbols."""

import re
import subprocess

GLIBC = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libresolv.so.2", "ld-linux-x86-64.so.2"}


def readelf(file, *options):
    return subprocess.run(["readelf", "-W", *options, file], capture_output=True, text=True, check=True).stdout


def is_elf(file):
    with open(file, "rb") as opened:
        return opened.read(4) == b"\x7fELF"


def needed(file):
    """The libraries that the loader must find for it."""
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", readelf(file, "--dynamic")))


def floor(file, library="GLIBC"):
    """The newest version of that library among the symbols that are asked for, as numbers: (2, 34)."""
    asked = re.findall(rf"Name: {library}_([\d.]+)", readelf(file, "--version-info").split("Version needs section")[-1])
    return max((tuple(map(int, version.split("."))) for version in asked), default=(0,))


def shown(file):
    """The symbols of its own that a program shows its libraries. Copies of a library's data have a version, and are left out."""
    rows = (line.split() for line in readelf(file, "--dyn-syms").splitlines())
    return {row[7] for row in rows if len(row) == 8 and row[0].endswith(":") and row[6].isdigit() and "@" not in row[7]}


def text_of(version):
    return ".".join(map(str, version))


def symbols_above(file, library, most):
    """The symbols that an older version of the library lacks, with their versions: what to look into when the floor is too high."""
    found = re.findall(rf"(\S+)@{library}_([\d.]+)", readelf(file, "--dyn-syms"))
    return sorted({f"{name}@{library}_{version}" for name, version in found if tuple(map(int, version.split("."))) > most})


def check(file, floors, others=frozenset()):
    """Refuses a file that asks for another library than glibc and these others, or for a newer version of a library than its floor:
    {"GLIBC": (2, 34)}."""
    more = needed(file) - GLIBC - others
    if more:
        raise SystemExit(f"package: {file} asks for {', '.join(sorted(more))}, and may ask for glibc{''.join(', ' + name for name in sorted(others))} alone")
    for library, most in floors.items():
        if floor(file, library) > most:
            raise SystemExit(f"package: {file} needs {library} {text_of(floor(file, library))}, and may need {text_of(most)}: "
                             + ", ".join(symbols_above(file, library, most)))
