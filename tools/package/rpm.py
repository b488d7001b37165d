"""The RPM packages, by rpmbuild, of the files that the Debian packages have."""

import pathlib
import subprocess
import tempfile

from . import debian

SPEC = """Name: {name}
Version: {version}
Release: 1
Summary: {summary}
License: {license}
{requires}
AutoReqProv: no
%global __strip /bin/true
%global __brp_compress /bin/true
%global debug_package %{{nil}}
%global _build_id_links none

%description
{description}

%install
mkdir -p %{{buildroot}}
cp -a "{root}/." %{{buildroot}}/
{scripts}
%files
{files}
"""
REQUIRES = """Requires: glibc >= {glibc}
Requires(pre): shadow-utils"""
DESCRIPTION = """A daemon, musterd, runs training jobs on Slurm or on this machine, follows every rank, and starts a job again from its
last checkpoint after a failure, a preemption or a time limit."""
SCRIPTS = """
%pre
getent passwd muster > /dev/null || useradd --system --user-group --home-dir /var/lib/muster --no-create-home --shell /sbin/nologin --comment muster muster

%post
if [ ! -d /var/lib/muster ]; then install -d -m 0700 -o muster -g muster /var/lib/muster; fi
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload || true
  if [ "$1" -gt 1 ]; then systemctl try-restart musterd.service || true; else systemctl enable --now musterd.service || true; fi
fi

%preun
if [ "$1" -eq 0 ] && [ -d /run/systemd/system ]; then systemctl disable --now musterd.service || true; fi

%postun
if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
"""
WORKER_REQUIRES = """Requires: muster
Requires: glibc >= {glibc}
Requires: libstdc++ >= 11"""
WORKER_DESCRIPTION = """muster-worker trains the recipes of muster's job files, sharded over ranks, and muster-infer uses their models. Both come
with LibTorch {torch} for the CPU."""


def pack(root, output, name, version, conffiles=(), payload=None, **texts):
    """An .rpm of the tree `root`. `texts`: what SPEC names in braces; `payload`: how rpmbuild compresses it. Returns its path."""
    listed = []
    for entry in sorted(root.rglob("*")):
        path = entry.relative_to(root)
        if not entry.is_dir():
            listed.append(f'%config(noreplace) "/{path}"' if f"/{path}" in conffiles else f'"/{path}"')
        elif any(part.startswith("muster") for part in path.parts):  # a folder of ours goes with the package
            listed.append(f'%dir "/{path}"')
    with tempfile.TemporaryDirectory() as folder:
        spec = pathlib.Path(folder) / "package.spec"
        spec.write_text(SPEC.format(name=name, version=version, root=root, files="\n".join(listed), **texts))
        subprocess.run(["rpmbuild", "-bb", "--quiet", f"--buildroot={folder}/root", f"--define=_topdir {folder}", f"--define=_rpmdir {output}",
                        "--define=_rpmfilename %{NAME}-%{VERSION}-%{RELEASE}.x86_64.rpm", *([f"--define=_binary_payload {payload}"] if payload else []),
                        spec], check=True)
    return output / f"{name}-{version}-1.x86_64.rpm"


def build(root, output, version, glibc):
    """An .rpm of the installed tree `root`. Data in /var/lib/muster and the user stay after `rpm -e`."""
    debian.system_files(root)
    return pack(root, output, "muster", version, debian.CONFFILES, summary="Submits, watches and requeues training jobs", license="Apache-2.0",
                requires=REQUIRES.format(glibc=glibc), description=DESCRIPTION, scripts=SCRIPTS)


def build_worker(root, output, version, glibc, torch):
    """An .rpm of the worker's tree `root`."""
    return pack(root, output, "muster-worker", version, payload="w6T0.xzdio", summary="Trains and uses models for muster, with LibTorch for the CPU",
                license="Apache-2.0 AND BSD-3-Clause AND LicenseRef-NVIDIA", requires=WORKER_REQUIRES.format(glibc=glibc),
                description=WORKER_DESCRIPTION.format(torch=torch), scripts="")
