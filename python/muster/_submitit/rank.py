"""The program of a task: python -m muster._submitit.rank FOLDER

1. Takes the environment of the submitter, and submitit's files as standard output and error. muster's log has both, too.
2. Becomes a second process image of itself, so that Python starts with that environment.
3. Lets submitit load the pickle, call the function and write the result.
4. Leaves with a code that muster understands: 0 done, 99 start me again, 93 the result is an exception, do not try again.
"""

from __future__ import annotations

import atexit
import os
import sys
import traceback
from pathlib import Path
from typing import Dict, List, Optional

from .. import _own
from .._run import REQUEUE_EXIT_CODE
from . import output
from .parameters import FOLDER
from .submission import IN_SHELL, TORCHRUN, Submission

NEVER_AGAIN_EXIT_CODE = 93
_exit_code: Optional[int] = None


def fail_after_result() -> None:
    """For a function that returns its failure as its result: the result is kept, and the job counts as failed."""
    global _exit_code
    _exit_code = NEVER_AGAIN_EXIT_CODE


def task_environment(given: Dict[str, str], submitter: Dict[str, str], on_slurm: bool) -> Dict[str, str]:
    """The environment of the function. What muster, Slurm and setup lines have set wins over the submitter's."""
    out = {**submitter, **given}
    if on_slurm and _is_loopback(out.get("MUSTER_ADDRESS", "")) and "MUSTER_CONTROLLER" in given:
        out["MUSTER_ADDRESS"] = given["MUSTER_CONTROLLER"]  # the submitter's machine is another one
    for name in TORCHRUN:
        if name in out:
            out["SUBMITIT_MUSTER_" + name] = out[name]
    if out.get("SUBMITIT_MUSTER_TORCHRUN") != "1":
        # submitit sets none of these. Its helpers refuse to overwrite them, and many programs look for them.
        out = {name: value for name, value in out.items()
               if name not in TORCHRUN and not name.startswith(("ROLE_", "GROUP_")) and name not in _TORCHELASTIC}
    gpus = out.get("SUBMITIT_MUSTER_GPUS")
    if gpus is not None and not on_slurm:
        # As in submitit, every local task sees all GPUs of the job.
        names = given["MUSTER_GPUS"].split(",") if "MUSTER_GPUS" in given else [str(number) for number in range(int(gpus))]
        out["CUDA_VISIBLE_DEVICES"] = ",".join(names[:int(gpus)])
    return out


def _is_loopback(address: str) -> bool:
    return address.rsplit(":", 1)[0] in ("localhost", "[::1]") or address.startswith("127.")


_TORCHELASTIC = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS")


def go_where_setup_went(folder: Optional[str]) -> None:
    """A script of sbatch that has gone elsewhere starts its tasks there. muster starts them in the job's working folder."""
    if folder is None or os.path.realpath(folder) == os.path.realpath(os.getcwd()):
        return
    try:
        os.chdir(folder)
    except OSError as error:
        print(f"muster: the setup lines went to {folder}, and this node cannot: {error.strerror}; the task stays in "
              f"{os.getcwd()}", file=sys.stderr, flush=True)


def prepare(folder: str) -> None:
    """The first process image. It ends in the second."""
    submission = Submission(os.environ["SUBMITIT_MUSTER_SUBMISSION"])
    given = dict(os.environ)
    go_where_setup_went(given.pop(FOLDER, None))
    environment = task_environment(given, submission.environment(given.pop(IN_SHELL, None) == "1"), "SLURM_JOB_ID" in given)
    environment["SUBMITIT_FOLDER"] = folder
    os.environ.clear()
    os.environ.update(environment)
    from .environment import MusterJobEnvironment
    paths = MusterJobEnvironment().paths
    paths.folder.mkdir(parents=True, exist_ok=True)
    if environment.get("SUBMITIT_MUSTER_STDERR_TO_STDOUT") == "1":
        copies = [output.copy(str(paths.stdout), 1)]
        os.dup2(1, 2)
    else:
        copies = [output.copy(str(paths.stdout), 1), output.copy(str(paths.stderr), 2)]
    environment[output.COPIES] = " ".join(str(pid) for pid in copies)
    os.execve(sys.executable, [sys.executable, "-u", "-m", "muster._submitit.rank", folder], environment)


def work(folder: str) -> int:
    """The second process image; the exit code."""
    rank = os.getpid()
    output.take(os.environ.pop(output.COPIES))
    atexit.register(output.finish)
    from submitit.core.submission import process_job

    from .environment import Ending, MusterJobEnvironment, StopHandler, attempt_number
    env = MusterJobEnvironment()
    paths = env.paths
    if attempt_number() > 1:
        last_word = Ending(paths).last_word()
        if last_word is not None:
            print("submitit: the attempt before has left the results", flush=True)
            return last_word
        paths.result_pickle.unlink(missing_ok=True)
        mend_torn_save(paths.result_pickle)
        if env.global_rank == 0:
            mend_torn_save(paths.submitted_pickle)
    try:
        process_job(folder)
        code = _exit_code or 0
    except Exception:
        traceback.print_exc()
        if StopHandler.is_stopping and env.global_rank != 0:
            # Task 0 has left, or is about to: the exception may come of that. Task 0 alone has the last word.
            paths.result_pickle.unlink(missing_ok=True)
            return REQUEUE_EXIT_CODE
        code = NEVER_AGAIN_EXIT_CODE
    if not _own.is_mine(rank):
        return code  # a child that the function has forked, and that came here instead of ending
    StopHandler.exit_code = code
    StopHandler.note_end(paths, env.num_tasks)
    return code


def mend_torn_save(path: Path) -> None:
    """After a kill in the middle of a save submitit refuses all later ones. It writes a draft, removes the file, and gives
    the draft its name: without the file the draft is whole."""
    draft = path.with_suffix(path.suffix + ".save_tmp")
    if not draft.exists():
        return
    if path.exists() or path.name.endswith("_result.pkl"):
        draft.unlink()
    else:
        os.replace(draft, path)


def main(arguments: List[str]) -> int:
    if len(arguments) != 2:
        print("usage: python -m muster._submitit.rank FOLDER", file=sys.stderr)
        return 2
    if output.COPIES not in os.environ:
        prepare(arguments[1])
    return work(arguments[1])


if __name__ == "__main__":
    # The module that functions import is the same one as this.
    sys.modules["muster._submitit.rank"] = sys.modules["__main__"]
    sys.exit(main(sys.argv))
