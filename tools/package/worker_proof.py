"""Tries the worker as people do: an ordinary user trains, and asks the model, with the wheel beside a torch, and with each package."""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import time
import zipfile

from . import elf
from .bootstrap import debian
from .proof import ROOT, USER, Container, Home, auditwheel, mounted, say, unpack, unpacked_image
from .worker_builds import TORCH


class Environment:
    """A virtual environment of an ordinary user, with a home of its own."""

    def __init__(self, home):
        self.home, self.bin = home, home / "env/bin"
        home.mkdir()
        os.chown(home, USER, USER)
        caller = {name: value for name, value in os.environ.items() if not name.startswith(("MUSTER_", "PYTHON", "XDG_"))}
        self.environment = {**caller, "HOME": str(home), "PATH": "/usr/bin:/bin", "TMPDIR": str(home), "PIP_NO_CACHE_DIR": "1",
                            "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        self.run("/usr/bin/python3", "-m", "venv", home / "env")

    def run(self, program, *words, status=0):
        """A program of the environment, or any by its path; its output."""
        command = [self.bin / program, *map(str, words)]
        done = subprocess.run(command, cwd=self.home, env=self.environment, user=USER, group=USER, extra_groups=[], capture_output=True,
                              text=True, stdin=subprocess.DEVNULL, timeout=900)
        if done.returncode != status:
            raise SystemExit(f"package: {' '.join(map(str, command))}: {done.returncode}, want {status}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    @contextlib.contextmanager
    def controller(self):
        """musterd, which ends by its own command."""
        self.run("muster", "up")
        try:
            yield
        finally:
            self.run("muster", "uninstall", "--yes", "--cancel")


def says(said, *texts):
    for text in texts:
        if text not in said:
            raise SystemExit(f"package: a program should say {text!r}, and says:\n{said}")


SHORT_TRAINING = [word for setting in ("data.max_bytes=256KiB", "train.steps=20", "train.validation_every_steps=10",
                                       "checkpoint.every_steps=10") for word in ("--set", setting)]


EXAMPLE = "manpages-llama.toml"


def train_and_ask(its, folder, name):
    """Two ranks of the example in a folder train on the CPU, and their model answers. Returns how many seconds the training took."""
    begin = time.monotonic()
    model = f"{folder}/{name}"
    job = its.run("muster", "submit", "--wait", *SHORT_TRAINING, "--set", f"train.export_folder={model}", f"{folder}/{EXAMPLE}")
    seconds = time.monotonic() - begin
    number = re.search(r"\d+", job)[0]
    says(its.run("muster", "show", number), "succeeded")
    metrics = its.run("muster", "metrics", number)
    if not re.search(r"^\s*1\s+20\b", metrics, re.MULTILINE):
        raise SystemExit(f"package: step 20 is not among the metrics of {name}:\n{metrics}")
    says(its.run("muster", "generate", model, "NAME", "--max-new-tokens", "8"), "NAME")
    return seconds


def try_worker(home, torch, files):
    """pip takes both wheels and leaves torch as it is. Trainings by the builds for CUDA and for the CPU follow, and then there is
    another torch, and none. Returns how many seconds the trainings took."""
    its = Environment(home)
    its.run("pip", "install", "--quiet", f"torch=={torch}.*")
    before = its.run("pip", "freeze")
    its.run("pip", "install", "--quiet", "--no-index", "--find-links", files[0].parent, "muster-hpc[worker]")
    changed = set(its.run("pip", "freeze").splitlines()) - set(before.splitlines())
    if {line.split(" ")[0].split("==")[0] for line in changed} != {"muster-hpc", "muster-hpc-worker"}:
        raise SystemExit(f"package: pip installed {changed}")
    its.run("pip", "check")
    shutil.copy(ROOT / "examples" / EXAMPLE, its.home)
    package = next(its.home.glob("env/lib/python*/site-packages/torch"))
    version = package / "version.py"
    assign = lambda name, value: version.write_text(re.sub(rf"^{name}\b.*", f"{name} = {value}", version.read_text(), flags=re.MULTILINE))
    with its.controller():
        says(its.run("muster", "doctor"), f", LibTorch {torch}.", " with CUDA\n")
        seconds = [train_and_ask(its, its.home, "by-cuda")]
        # What tells the starter of a torch without CUDA. Its libtorch_cpu has the same functions.
        assign("cuda", None)
        said = its.run("muster", "--version")
        if not re.search(rf", LibTorch {torch}\.\d+\n", said):
            raise SystemExit(f"package: muster --version names another LibTorch than {torch} without CUDA:\n{said}")
        seconds.append(train_and_ask(its, its.home, "by-cpu"))
        assign("__version__", "'2.9.0'")
        says(its.run("muster", "doctor", status=1), "bad   worker", "does not start", "torch 2.9.0")
        its.run("muster", "submit", "--wait", EXAMPLE, status=1)
        says(" ".join(its.run("muster", "show", "3").split()), "(trying again cannot help)", "torch 2.9.0", "does not fit")
    for program in ("muster-worker", "muster-infer"):
        said = its.run(program, "--version", status=93)
        says(said, f"{program}: error: torch 2.9.0", "does not fit", "run pip install 'torch==")
        if said.count("\n") != 1:
            raise SystemExit(f"package: {program} says more than a line:\n{said}")
    package.rename(package.with_name("elsewhere"))
    says(its.run("muster-worker", "--version", status=93), "muster-worker: error: there is no torch in ")
    return seconds


def prove(control, worker, versions, platform, work):
    """auditwheel agrees with its platform once it knows that LibTorch is another package's; and people use both wheels beside each
    torch that fits."""
    program, environment = auditwheel(work)
    repaired = work / "repaired"
    without = [word for name in sorted(TORCH) for word in ("--exclude", name)]
    done = subprocess.run([program, "repair", *without, "--plat", platform, "--wheel-dir", repaired, worker], env=environment,
                          capture_output=True, text=True)
    if done.returncode != 0 or not (repaired / worker.name).exists():
        raise SystemExit(f"package: auditwheel does not agree with {platform}:\n{done.stdout}{done.stderr}")
    with zipfile.ZipFile(repaired / worker.name) as packed:
        added = [name for name in packed.namelist() if ".libs/" in name]
    if added:
        raise SystemExit(f"package: auditwheel adds libraries to {worker.name}: {added}")
    say(f"{worker.name}: auditwheel agrees with {platform}")
    wheels = work / "both"
    wheels.mkdir()
    files = [pathlib.Path(shutil.copy(file, wheels)) for file in (control, worker)]
    for version in versions:
        torch = elf.text_of(version)
        home = work / f"home-{torch}"
        seconds = try_worker(home, torch, files)
        shutil.rmtree(home)
        say(f"{worker.name}: with torch {torch}, two ranks trained by the builds for CUDA and the CPU in "
            f"{' and '.join(f'{one:.0f} s' for one in seconds)} and their models answered; another torch, and none, are told")


def train_in(home, torch):
    """The example, by a user of a root file system in which muster and the worker are installed. Returns its seconds."""
    shutil.copy(ROOT / "examples" / EXAMPLE, home.folder)
    says(home.run("muster-worker", "--version"), f", LibTorch {torch}\n")
    with home.daemon():
        return train_and_ask(home, home.home, "model")


def archive(control, worker, torch, work):
    """Both archives are unpacked into one folder."""
    root = work / "root-worker-archive"
    unpack(debian("bookworm", work), root)
    for packed in (control, worker):
        subprocess.run(["tar", "-xf", packed, "-C", root / "opt"], check=True)
    programs = next((root / "opt").iterdir()).name
    with mounted(root):
        seconds = train_in(Home(root, f"/opt/{programs}/bin"), torch)
    shutil.rmtree(root)
    say(f"{worker.name}: unpacked beside the archive of muster, two ranks trained in Debian 12 in {seconds:.0f} s and their model answered")


def deb(control, worker, torch, work):
    """dpkg installs, upgrades and removes it; a torch of the admin's is taken before the package's."""
    root = work / "root-worker-deb"
    unpack(debian("bookworm", work), root)
    for file in (control, worker):
        shutil.copy(file, root / "srv")
    with mounted(root):
        system = Home(root, "/usr/bin", user=0)
        system.run("dpkg", "--install", f"/srv/{control.name}", f"/srv/{worker.name}")
        seconds = train_in(Home(root, "/usr/bin", user=USER), torch)
        other = root / "usr/local/lib/muster"
        (other / "torch").mkdir(parents=True)
        (other / "torch/version.py").write_text("__version__ = '2.9.0'\n")
        says(system.run("muster-worker", "--version", status=93), "torch 2.9.0 in /usr/local/lib/muster does not fit",
             "run pip install --target /usr/local/lib/muster 'torch==")
        shutil.rmtree(other)
        system.run("dpkg", "--install", f"/srv/{worker.name}")
        system.run("dpkg", "--purge", "muster-worker")
        left = [path for path in ("usr/lib/muster", "usr/bin/muster-worker", "usr/share/doc/muster-worker") if (root / path).exists()]
        if left or not (root / "usr/bin/muster").exists():
            raise SystemExit(f"package: {worker.name}: dpkg --purge leaves {left}")
    shutil.rmtree(root)
    say(f"{worker.name}: installed, two ranks trained in {seconds:.0f} s and their model answered, upgraded and purged in Debian 12")


def rpm(control, worker, torch, work):
    """rpm installs and removes it, in a root file system whose database of packages is empty."""
    root = work / "root-worker-rpm"
    unpack(debian("bookworm", work), root)
    with mounted(root):
        run = lambda *words: subprocess.run(["rpm", f"--root={root}", *words], check=True, capture_output=True, text=True).stdout
        run("--initdb")
        run("-i", "--nodeps", control, worker)
        seconds = train_in(Home(root, "/usr/bin"), torch)
        run("-e", "--nodeps", "muster-worker")
        if (root / "usr/lib/muster").exists() or (root / "usr/bin/muster-worker").exists():
            raise SystemExit(f"package: {worker.name} leaves files behind")
    shutil.rmtree(root)
    say(f"{worker.name}: installed, two ranks trained in {seconds:.0f} s and their model answered, and removed")


def image(file, version, torch, work):
    bundle = unpacked_image(file, version, work)
    container = Container(bundle, "trains")
    shutil.copy(ROOT / "examples" / EXAMPLE, container.folder)
    with container.daemon():
        says(container.run("muster-worker", "--version"), f", LibTorch {torch}\n")
        seconds = train_and_ask(container, container.home, "model")
    licences = [path for path in ("torch/LICENSE", "nvidia_cuda_runtime", "nvidia_cuda_cupti")
                if not (bundle / "rootfs/usr/share/doc/muster-worker" / path).exists()]
    if licences:
        raise SystemExit(f"package: {file.name} lacks the licences {licences}")
    say(f"{file.name}: skopeo and umoci agree with it; in a container two ranks trained in {seconds:.0f} s and their model answered")
