"""muster for PyTorch Lightning.

    callback = muster.lightning.Callback()
    trainer = Trainer(callbacks=[callback], plugins=[muster.lightning.Environment()])
    trainer.fit(model, data, ckpt_path=callback.newest_checkpoint())

With Environment, Lightning does not requeue a Slurm job by itself: muster does.
"""

from __future__ import annotations

import os
import zipfile
from typing import Any, Optional

try:
    from lightning.pytorch import Callback as _Callback
    from lightning.pytorch.plugins.environments import ClusterEnvironment
except ImportError:
    from pytorch_lightning import Callback as _Callback
    from pytorch_lightning.plugins.environments import ClusterEnvironment

from ._files import newest
from ._run import RESERVED, Run, init


class Environment(ClusterEnvironment):
    """Ranks that muster has started: one process a rank, on one node or many."""

    @staticmethod
    def detect() -> bool:
        return "MUSTER_JOB_ID" in os.environ and "RANK" in os.environ

    @property
    def creates_processes_externally(self) -> bool:
        return True

    @property
    def main_address(self) -> str:
        return os.environ["MASTER_ADDR"]

    @property
    def main_port(self) -> int:
        return int(os.environ["MASTER_PORT"])

    def world_size(self) -> int:
        return int(os.environ["WORLD_SIZE"])

    def global_rank(self) -> int:
        return int(os.environ["RANK"])

    def local_rank(self) -> int:
        return int(os.environ["LOCAL_RANK"])

    def node_rank(self) -> int:
        return int(os.environ.get("GROUP_RANK", "0"))

    def set_world_size(self, size: int) -> None:
        self._expect("world size", size, self.world_size())

    def set_global_rank(self, rank: int) -> None:
        self._expect("rank", rank, self.global_rank())

    def validate_settings(self, num_devices: int, num_nodes: int) -> None:
        if num_devices * num_nodes != self.world_size():
            raise ValueError(
                f"Trainer(devices={num_devices}, num_nodes={num_nodes}) wants {num_devices * num_nodes} processes, and "
                f"muster started {self.world_size()}; make them equal: devices is the job file's ranks a node")

    @staticmethod
    def _expect(what: str, value: int, given: int) -> None:
        if value != given:
            raise ValueError(f"Lightning wants {what} {value}, and muster gave {given}; leave devices and num_nodes to "
                             f"the job file")


class Callback(_Callback):
    """Reports steps, logged numbers and checkpoints. When muster asks the program to leave, all ranks save after the
    same step and end with code 99, and muster starts the job again.

    The sections are "step", "evaluate" (also of tests and predictions), "checkpoint" while Lightning saves, and "end" from
    the end of training on.

    folder: where the checkpoint of a stop goes; the job's checkpoint folder unless given.
    """

    def __init__(self, folder: Optional[str] = None) -> None:
        self._folder = folder
        self._run: Optional[Run] = None
        self._step: Optional[int] = None
        self._saved: set = set()
        self._saved_step: Optional[int] = None  # of the newest checkpoint that training can go on from
        self._usual = "step"  # the section outside of evaluation and save

    @property
    def folder(self) -> str:
        return os.path.join(self._folder or os.environ.get("MUSTER_CHECKPOINT_FOLDER") or os.getcwd(), "lightning")

    def newest_checkpoint(self) -> Optional[str]:
        """The newest whole checkpoint in the folder, for fit(ckpt_path=...); None: there is none. Lightning moves a file
        into the folder, and copies it when the folder is on another disk than the temporary files. A trainer that is
        killed then leaves a part of the file."""
        return newest(self.folder, r"step-(\d+)\.ckpt", zipfile.is_zipfile)

    def on_train_start(self, trainer: Any, module: Any) -> None:
        steps = trainer.estimated_stepping_batches
        known = isinstance(steps, int) and steps > 0
        self._run = init(total_steps=steps if known else None, config=dict(module.hparams))
        # Lightning's own handler broadcasts among the ranks inside the signal, and would end them without a checkpoint.
        self._run._watch.take_sigterm(from_others=True)
        self._run.resume(trainer.global_step)
        self._step = trainer.global_step
        self._saved = self._checkpoints_of(trainer)
        self._usual = "step"
        self._go_to("step")

    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        self._go_to("step")

    def on_train_batch_start(self, trainer: Any, module: Any, *more: Any) -> None:
        self._go_to("step")

    def on_train_batch_end(self, trainer: Any, module: Any, *more: Any) -> None:
        step = trainer.global_step
        if self._run is None or step == self._step:  # gradients are being accumulated
            return
        self._step = step
        self._log(trainer, step)
        self._report_checkpoints(trainer)
        if self._run._is_due(step):
            self._leave(trainer, step)

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        if not trainer.sanity_checking:
            self._go_to("evaluate")

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        if self._run is not None and self._run._at[0] == "evaluate":
            self._go_to(self._usual)
            self._log(trainer, trainer.global_step)

    def on_test_start(self, trainer: Any, module: Any) -> None:
        self._go_to("evaluate")

    def on_test_end(self, trainer: Any, module: Any) -> None:
        self._go_to(self._usual)

    def on_predict_start(self, trainer: Any, module: Any) -> None:
        self._go_to("evaluate")

    def on_predict_end(self, trainer: Any, module: Any) -> None:
        self._go_to(self._usual)

    def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: Any) -> None:
        # Lightning saves after this callback's turn, so the step of a new file is not the step in which it is seen.
        self._saved_step = checkpoint["global_step"]
        self._go_to("checkpoint")  # up to the next call of this callback; none tells that the file is written

    def on_train_end(self, trainer: Any, module: Any) -> None:
        self._usual = "end"
        self._go_to("end")

    def on_fit_end(self, trainer: Any, module: Any) -> None:
        if self._run is not None:
            self._report_checkpoints(trainer)
        self._go_to(self._usual)  # after what was saved at the end of training

    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        if self._run is not None and isinstance(exception, Exception):
            self._run.error(exception)

    def _go_to(self, section: str) -> None:
        if self._run is not None:
            self._run._go_to(section)

    def _log(self, trainer: Any, step: int) -> None:
        assert self._run is not None
        self._run.log(step, {name: value for name, value in trainer.callback_metrics.items() if name not in RESERVED})

    def _leave(self, trainer: Any, step: int) -> None:
        assert self._run is not None
        stop = self._run.stop
        if stop is None or stop.save:
            path = os.path.join(self.folder, f"step-{step}.ckpt")
            trainer.save_checkpoint(path)  # of all ranks; it appears whole or not at all
            self._run.checkpoint(path, step)
        self._run.leave()

    def _report_checkpoints(self, trainer: Any) -> None:
        assert self._run is not None
        for path in sorted(self._checkpoints_of(trainer) - self._saved):
            self._saved.add(path)
            if self._saved_step is not None:
                self._run.checkpoint(path, self._saved_step)

    @staticmethod
    def _checkpoints_of(trainer: Any) -> set:
        paths = set()
        for one in trainer.checkpoint_callbacks:
            paths |= {getattr(one, name, "") for name in ("last_model_path", "best_model_path")}
        return {path for path in paths if path}
