"""A job of a private Slurm runs with the programs of an archive while the machine's libraries are out of reach.

Usage: python3 -B -m package.on_slurm PROGRAMS, from tools/, as root, in a mount namespace of its own (unshare --mount)

PROGRAMS: the folder of the archive's programs. Only the libraries that Slurm, munge, the shell and this Python need stay.
"""

import ctypes
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time

TOOLS = pathlib.Path(__file__).resolve().parents[1]
KEPT = ("slurmctld", "slurmd", "slurmstepd", "munged", "sbatch", "srun", "squeue", "scontrol", "scancel", "sinfo", "sacct", "bash", "sh",
        "env", "mkdir", "date", "sleep", "touch", "hostname", "ip", "mount", "umount", "unshare", "nsenter")
LIBRARIES = pathlib.Path("/usr/lib/x86_64-linux-gnu")
USES_LIBRARIES = "/usr/bin/protoc"  # what muster is compiled with is there
LIMIT_S = 120
JOB = """name = "archive"
executor = "slurm"
command = ["/bin/bash", "{folder}/train.sh"]
[resources]
nodes = 2
[checkpoint]
folder = "{folder}/checkpoints"
[report.log]
step = 'step (\\d+)'
"""
# The first attempt's second rank ends itself at step 30.
TRAIN = """file="$MUSTER_CHECKPOINT_FOLDER/step-$RANK"
mkdir -p "$MUSTER_CHECKPOINT_FOLDER"
step=0
[ ! -e "$file" ] || read step < "$file"
while [ "$step" -lt 60 ]; do
  step=$((step + 1))
  echo "step $step"
  echo "$step" > "$file"
  if [ "$step" = 30 ] && [ "$RANK" = 1 ] && [ "$MUSTER_ATTEMPT" = 1 ]; then kill -9 $$; fi
  sleep 0.02
done
"""


def libraries_of(file):
    """The files that the loader maps for a program."""
    said = subprocess.run(["ldd", file], capture_output=True, text=True, check=False).stdout
    return {os.path.realpath(path) for path in re.findall(r"(/\S+\.so\S*) \(0x", said)}


def hide(kept):
    """Puts an empty file over each library of the machine that `kept` do not need. Returns how many."""
    needed = set().union(*map(libraries_of, kept))
    hidden = [file for file in sorted(LIBRARIES.glob("*.so*")) if file.is_file() and not file.is_symlink() and str(file.resolve()) not in needed]
    libc = ctypes.CDLL(None, use_errno=True)
    bind = 4096
    for library in hidden:
        if libc.mount(b"/dev/null", os.fsencode(library), None, bind, None) != 0:
            raise SystemExit(f"package: {library} cannot be hidden: {os.strerror(ctypes.get_errno())}")
    return len(hidden)


def run(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, **more)
    if done.returncode != 0:
        raise SystemExit(f"package: {' '.join(map(str, command))}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def job(programs, folder, slurm):
    """Runs the job, and returns what muster shows of it."""
    folder.mkdir()
    (folder / "train.sh").write_text(TRAIN)
    (folder / "job.toml").write_text(JOB.format(folder=folder))
    variables = os.environ | slurm | {"MUSTER_DATA_FOLDER": str(folder / "data"), "HOME": str(folder)}
    with open(folder / "musterd.log", "w") as log:
        musterd = subprocess.Popen([programs / "musterd", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--slurm", "yes"],
                                   env=variables, stdout=log, stderr=log)
    try:
        until = time.monotonic() + LIMIT_S
        while not (folder / "data/musterd.json").exists():
            if musterd.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"package: musterd did not start: {(folder / 'musterd.log').read_text()}")
            time.sleep(0.1)
        run(programs / "muster", "submit", "--wait", folder / "job.toml", env=variables)
        return json.loads(run(programs / "muster", "show", "1", "--json", env=variables))
    finally:
        musterd.terminate()
        musterd.wait(60)


def main():
    programs = pathlib.Path(sys.argv[1]).resolve()
    kept = [sys.executable, *pathlib.Path(sysconfig.get_path("platstdlib"), "lib-dynload").glob("*.so"),
            *filter(None, (shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin") for name in KEPT)), *LIBRARIES.glob("slurm-wlm/*.so")]
    count = hide(kept)
    if subprocess.run([USES_LIBRARIES, "--version"], capture_output=True, check=False).returncode == 0:
        raise SystemExit(f"package: {USES_LIBRARIES} starts although {count} libraries are hidden, so nothing is proven")
    with tempfile.TemporaryDirectory(prefix="muster-on-slurm-", dir="/tmp") as work:
        keeper = subprocess.Popen([sys.executable, "-B", TOOLS / "cluster", "start", "--folder", f"{work}/slurm", "--nodes", "2", "--foreground",
                                   "--die-with-parent"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            report = json.loads(keeper.stdout.readline() or '{"error": "no report"}')
            if "error" in report:
                raise SystemExit(f"package: the private Slurm did not start: {report['error']}")
            shown = job(programs, pathlib.Path(work) / "job", {"SLURM_CONF": f"{work}/slurm/slurm.conf"})
        finally:
            keeper.stdin.close()
            keeper.stdout.close()
            keeper.wait(LIMIT_S)
    attempts = [(one["cause"], one["scheduler_job"]) for one in shown["attempts"]]
    if shown["state"] != "succeeded" or len(attempts) != 2 or not all(slurm for _, slurm in attempts):
        raise SystemExit(f"package: the job is {shown['state']} after the attempts {attempts}")
    print(f"{count} libraries of the machine were hidden; two ranks on two nodes, one killed: {len(attempts)} jobs of Slurm, {shown['state']}")


if __name__ == "__main__":
    main()
