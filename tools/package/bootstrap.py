"""Root file systems of Debian, by mmdebstrap."""

import os
import pathlib
import re
import subprocess

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def source_of_debian():
    """The mirror that this machine takes its packages from."""
    for file in [pathlib.Path("/etc/apt/sources.list"), *pathlib.Path("/etc/apt/sources.list.d").glob("*")]:
        found = re.search(r"^(?:URIs:|deb(?: \[.*?\])?) *(\S+://\S*debian/?)\s", file.read_text() if file.is_file() else "", re.MULTILINE)
        if found:
            return found.group(1)
    raise SystemExit("package: no mirror of Debian in /etc/apt")


def bootstrap(release, archive, *options, **environment):
    """Writes a root file system of that release of Debian as a tar; `environment` is mmdebstrap's."""
    subprocess.run(["mmdebstrap", "--quiet", '--aptopt=APT::Sandbox::User "root"', *options, release, archive,
                    f"deb [signed-by={KEYRING}] {source_of_debian()} {release} main"], check=True,
                   env={**os.environ, **environment})
    return archive


def debian(release, work, *packages):
    """A small root file system of that release with these packages, made once."""
    archive = work / ("-".join([release, *packages]) + ".tar")
    if not archive.exists():
        bootstrap(release, archive, "--variant=minbase", *(f"--include={name}" for name in packages))
    return archive
