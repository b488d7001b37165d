"""The RPM package, by rpmbuild, of the files that the Debian package has."""

import pathlib
import subprocess
import tempfile

from . import debian

SPEC = """Name: muster
Version: {version}
Release: 1
Summary: Submits, watches and requeues training jobs
License: Apache-2.0
Requires: glibc >= {glibc}
Requires(pre): shadow-utils
AutoReqProv: no
%global __strip /bin/true
%global __brp_compress /bin/true
%global debug_package %{{nil}}
%global _build_id_links none

%description
A daemon, musterd, runs training jobs on Slurm or on this machine, follows every rank, and starts a job again from its
last checkpoint after a failure, a preemption or a time limit.

%install
mkdir -p %{{buildroot}}
cp -a "{root}/." %{{buildroot}}/

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

%files
{files}
"""


def build(root, output, version, glibc):
    """An .rpm of the installed tree `root`. Data in /var/lib/muster and the user stay after `rpm -e`."""
    debian.system_files(root)
    files = ["/" + str(file.relative_to(root)) for file in sorted(root.rglob("*")) if not file.is_dir()]
    listed = [f'%config(noreplace) "{file}"' if file in debian.CONFFILES else f'"{file}"' for file in files]
    with tempfile.TemporaryDirectory() as folder:
        spec = pathlib.Path(folder) / "muster.spec"
        spec.write_text(SPEC.format(version=version, glibc=glibc, root=root, files="\n".join(listed)))
        subprocess.run(["rpmbuild", "-bb", "--quiet", f"--buildroot={folder}/root", f"--define=_topdir {folder}", f"--define=_rpmdir {output}",
                        "--define=_rpmfilename %{NAME}-%{VERSION}-%{RELEASE}.x86_64.rpm",
                        spec], check=True)
    return output / f"muster-{version}-1.x86_64.rpm"
