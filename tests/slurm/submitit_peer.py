"""Makes submitit itself write batch scripts, by real submissions to a fake sbatch that only keeps the script.

Usage: submitit_peer.py CASES FOLDER
CASES is a Python literal: a list of (folder, number of submissions, list of update_parameters calls). For case number i,
FOLDER/i.sh is the script, or FOLDER/i.refused says why submitit refused.
"""

import ast
import os
import pathlib
import sys
import warnings

SBATCH = '#!/bin/sh\ncat -- "$1" > "$SUBMITIT_PEER_SCRIPT"\necho "Submitted batch job 12"\n'


def fake_slurm(folder):
    folder.mkdir()
    for name, text in (("sbatch", SBATCH), ("srun", "#!/bin/sh\nexit 1\n"), ("sacct", "#!/bin/sh\n"),
                       ("scancel", "#!/bin/sh\n"), ("scontrol", "#!/bin/sh\n")):
        program = folder / name
        program.write_text(text)
        program.chmod(0o755)
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"


def write_script(folder, count, calls):
    import submitit

    executor = submitit.AutoExecutor(folder=folder, cluster="slurm", slurm_python="python3")
    for call in calls:
        executor.update_parameters(**call)
    if count == 1:
        executor.submit(abs, -1)
    else:
        executor.map_array(abs, range(count))


def main():
    warnings.simplefilter("ignore")
    cases = ast.literal_eval(pathlib.Path(sys.argv[1]).read_text())
    out = pathlib.Path(sys.argv[2])
    fake_slurm(out / "bin")
    for i, (folder, count, calls) in enumerate(cases):
        os.environ["SUBMITIT_PEER_SCRIPT"] = str(out / f"{i}.sh")
        try:
            write_script(folder, count, calls)
        except (NameError, AssertionError, ValueError, TypeError) as error:
            (out / f"{i}.refused").write_text(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
