"""The Debian packages: muster (programs, unit, manual) and muster-worker."""

import gzip
import pathlib
import shutil
import subprocess

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
CONFFILES = ["/etc/muster/musterd.env"]
CONTROL = """Package: muster
Version: {version}
Architecture: amd64
Section: admin
Priority: optional
Maintainer: muster <muster@localhost>
Depends: libc6 (>= {glibc}), passwd
Pre-Depends: init-system-helpers
Recommends: python3
Suggests: slurm-client
Installed-Size: {size}
Description: submits, watches and requeues training jobs
 A daemon, musterd, runs training jobs on Slurm or on this machine, follows every
 rank, and starts a job again from its last checkpoint after a failure, a
 preemption or a time limit.
"""
WORKER_CONTROL = """Package: muster-worker
Version: {version}
Architecture: amd64
Section: science
Priority: optional
Maintainer: muster <muster@localhost>
Depends: muster, libc6 (>= {glibc}), libstdc++6 (>= 11), libgcc-s1
Installed-Size: {size}
Description: trains and uses models for muster, with LibTorch for the CPU
 muster-worker trains the recipes of muster's job files, sharded over ranks, and
 muster-infer uses their models. Both come with LibTorch {torch} for the CPU.
"""
# musterd is enabled and started once, at the first installation. An upgrade restarts it if it runs; jobs go on.
POSTINST = """#!/bin/sh
set -e
if [ "$1" = configure ]; then
  if ! getent passwd muster > /dev/null; then
    useradd --system --user-group --home-dir /var/lib/muster --no-create-home --shell /usr/sbin/nologin --comment muster muster
  fi
  if [ ! -d /var/lib/muster ]; then install -d -m 0700 -o muster -g muster /var/lib/muster; fi
  if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
    if [ -n "$2" ]; then systemctl try-restart musterd.service || true; else systemctl enable --now musterd.service || true; fi
  fi
fi
"""
PRERM = """#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then systemctl disable --now musterd.service || true; fi
"""
# The data stays after `remove`, as a database's does. `purge` removes it, with the user.
POSTRM = """#!/bin/sh
set -e
if [ "$1" = purge ]; then
  rm -rf /var/lib/muster /etc/muster
  if getent passwd muster > /dev/null; then userdel muster || true; fi
fi
if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
"""


def system_files(root):
    """What a package has beside what CMake installs below /usr. A package's programs are found without a module."""
    shutil.rmtree(root / "usr/share/modulefiles")
    for source, place, mode in ((DEPLOY / "musterd.service", "usr/lib/systemd/system/musterd.service", 0o644),
                                (DEPLOY / "musterd.env", "etc/muster/musterd.env", 0o644)):
        file = root / place
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, file)
        file.chmod(mode)


def pack(root, output, control, scripts=(), conffiles=(), **values):
    """The .deb of the tree `root`, which becomes the package's. `values`: what the text of `control` names in braces. Returns its
    path."""
    name = control.split()[1]
    documents = root / "usr/share/doc" / name
    (documents / "LICENSE").rename(documents / "copyright")
    size = sum(file.stat().st_size for file in root.rglob("*") if file.is_file()) // 1024
    debian = root / "DEBIAN"
    debian.mkdir()
    (debian / "control").write_text(control.format(size=size, **values))
    if conffiles:
        (debian / "conffiles").write_text("".join(file + "\n" for file in conffiles))
    for script, text in scripts:
        (debian / script).write_text(text)
        (debian / script).chmod(0o755)
    package = output / f"{name}_{values['version']}_amd64.deb"
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", root, package], check=True, stdout=subprocess.DEVNULL)
    return package


def build(root, output, version, glibc):
    """A .deb of the installed tree `root`. Returns its path."""
    system_files(root)
    for page in (root / "usr/share/man").rglob("*.[158]"):
        page.with_name(page.name + ".gz").write_bytes(gzip.compress(page.read_bytes(), 9, mtime=0))
        page.unlink()
    return pack(root, output, CONTROL, (("postinst", POSTINST), ("prerm", PRERM), ("postrm", POSTRM)), CONFFILES, version=version, glibc=glibc)
