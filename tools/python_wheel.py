"""Builds the wheel of the Python package, without a build backend and without a network.

Usage: python_wheel.py FOLDER OUTPUT [--programs FOLDER --platform TAG]
FOLDER holds pyproject.toml and the packages that it lists. The same sources give the same bytes on any machine.
With --programs the wheel is that of a platform, such as manylinux_2_34_x86_64, and installs these programs too. pip takes
it where it fits, and elsewhere the wheel without programs, which has the same name and version.
Prints the wheel's path. Exit status: 0, or 1 with one line that says what is wrong.
"""

import argparse
import base64
import hashlib
import pathlib
import re
import sys
import tomllib
import zipfile

# What this program understands of pyproject.toml. A key that it would leave out is an error.
PROJECT_KEYS = {"name", "version", "description", "requires-python", "dependencies", "optional-dependencies", "entry-points",
                "scripts", "license", "urls"}
SETUPTOOLS_KEYS = {"packages", "package-data"}
WHEEL = "Wheel-Version: 1.0\nGenerator: muster tools/python_wheel.py\nRoot-Is-Purelib: {}\nTag: py3-none-{}\n"
MODE = 0o100644 << 16
PROGRAM_MODE = 0o100755 << 16


class Wrong(Exception):
    pass


def check_keys(table, known, where):
    for key in table:
        if key not in known:
            raise Wrong(f"pyproject.toml: {where}.{key}: tools/python_wheel.py does not know this key; add it there")


def metadata(project):
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}"]
    lines += [f"Summary: {project['description']}"] if "description" in project else []
    lines += [f"License: {project['license']['text']}"] if "license" in project else []
    lines += [f"Project-URL: {name}, {url}" for name, url in project.get("urls", {}).items()]
    lines += [f"Requires-Python: {project['requires-python']}"] if "requires-python" in project else []
    lines += [f"Requires-Dist: {needed}" for needed in project.get("dependencies", [])]
    for extra, needs in project.get("optional-dependencies", {}).items():
        lines += [f"Provides-Extra: {extra}", *(f"Requires-Dist: {with_extra(needed, extra)}" for needed in needs)]
    return "\n".join(lines) + "\n"


def with_extra(needed, extra):
    requirement, _, marker = needed.partition(";")
    return f'{requirement.strip()} ; ' + (f'({marker.strip()}) and ' if marker else "") + f'extra == "{extra}"'


def entry_points(project):
    groups = {**project.get("entry-points", {})}
    if "scripts" in project:
        groups["console_scripts"] = project["scripts"]
    return "\n".join(f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in names.items())
                     for group, names in groups.items())


def package_files(folder, setuptools):
    """The files of the packages by their names in the wheel."""
    files = {}
    for package in setuptools["packages"]:
        path = folder / package.replace(".", "/")
        found = [*path.glob("*.py"), *(file for pattern in setuptools.get("package-data", {}).get(package, [])
                                       for file in path.glob(pattern))]
        if not found:
            raise Wrong(f"pyproject.toml: tool.setuptools.packages: {package}: there is no Python file in {path}")
        files.update({file.relative_to(folder).as_posix(): file.read_bytes() for file in found})
    return files


def stem_of(project):
    return re.sub(r"[-_.]+", "_", project["name"]).lower() + "-" + project["version"]


def write(output, project, files, platform="any", programs=(), executable=None):
    """Writes the wheel of a project that has these files, and these programs, which pip puts into the folder bin of an
    environment. Files below the folder `executable` are programs, too. It replaces an older wheel of the same name and platform
    in the folder `output`."""
    stem = stem_of(project)
    info = f"{stem}.dist-info"
    is_pure = platform == "any"
    scripts = f"{stem}.data/scripts/"
    of_programs = tuple(filter(None, (scripts, executable)))
    files = {**files, f"{info}/METADATA": metadata(project).encode(),
             f"{info}/WHEEL": WHEEL.format("true" if is_pure else "false", platform).encode(),
             **{scripts + name: data for name, data in programs}}
    if entry_points(project):
        files[f"{info}/entry_points.txt"] = entry_points(project).encode()
    record = f"{info}/RECORD"
    files[record] = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for name, data in sorted(files.items())).encode() + f"{record},,\n".encode()
    output.mkdir(parents=True, exist_ok=True)
    for old in output.glob(f"{stem.split('-')[0]}-*-py3-none-{platform}.whl"):
        old.unlink()
    wheel = output / f"{stem}-py3-none-{platform}.whl"
    # Stored, since compressed bytes depend on the machine's zlib. Programs are too large for that.
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED if is_pure else zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in sorted(files.items(), key=lambda file: (file[0].startswith(info), file[0])):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.create_system, entry.external_attr = 3, PROGRAM_MODE if name.startswith(of_programs) else MODE
            archive.writestr(entry, data, archive.compression, archive.compresslevel)
    return wheel


def licence_of(folder, project):
    """The licence beside this folder, by its name in the wheel."""
    licence = folder.parent / "LICENSE"
    return {f"{stem_of(project)}.dist-info/LICENSE": licence.read_bytes()} if licence.is_file() else {}


def build(folder, output, programs=None, platform="any"):
    pyproject = tomllib.loads((folder / "pyproject.toml").read_text())
    project, setuptools = pyproject["project"], pyproject["tool"]["setuptools"]
    check_keys(project, PROJECT_KEYS, "project")
    check_keys(setuptools, SETUPTOOLS_KEYS, "tool.setuptools")
    files = {**package_files(folder, setuptools), **licence_of(folder, project)}
    found = [(file.name, file.read_bytes()) for file in sorted(programs.iterdir())] if programs else []
    return write(output, project, files, platform, found)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--programs", type=pathlib.Path)
    parser.add_argument("--platform", default="any")
    given = parser.parse_args()
    try:
        print(build(given.folder, given.output, given.programs, given.platform))
    except (Wrong, OSError, tomllib.TOMLDecodeError) as error:
        print(f"package: {error}", file=sys.stderr)
        return 1
    except KeyError as error:
        print(f"package: pyproject.toml: {error.args[0]} is missing", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
