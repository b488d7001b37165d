"""muster for the Trainer of Hugging Face transformers.

    trainer = Trainer(model, args, train_dataset=data, callbacks=[muster.hf.Callback()])
    trainer.train(resume_from_checkpoint=muster.hf.newest_checkpoint(args.output_dir))
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Optional

from transformers import TrainerCallback
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from ._files import newest
from ._run import RESERVED, Run, init


def newest_checkpoint(output_dir: str) -> Optional[str]:
    """The newest whole checkpoint of a Trainer in its output folder; None: there is none. A Trainer that is killed while
    it saves leaves a folder without its last file."""
    return newest(output_dir, PREFIX_CHECKPOINT_DIR + r"-(\d+)", _is_whole)


def _is_whole(checkpoint: str) -> bool:
    """The Trainer writes this file last."""
    try:
        with open(os.path.join(checkpoint, TRAINER_STATE_NAME), encoding="utf-8") as file:
            json.load(file)
        return True
    except (OSError, ValueError):
        return False


class Callback(TrainerCallback):
    """Reports steps, logged numbers, evaluations and checkpoints. When muster asks the program to leave, the Trainer
    saves, train() ends the program with code 99, and muster starts it again.

    The sections are "step", "evaluate", "checkpoint" while the Trainer saves, and "end" from the end of training on."""

    def __init__(self) -> None:
        self._run: Optional[Run] = None
        self._leaves = False
        self._unlogged: Optional[int] = None  # a step that on_log has not reported
        self._after = "step"  # the section when evaluation and save are over

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        config = {key: value for key, value in args.to_sanitized_dict().items() if value not in ("", None)}
        self._run = init(total_steps=state.max_steps, config=config)
        self._run.describe({"learning_rate": {"better": "neither"}, "loss": {"better": "lower"},
                            "validation/loss": {"better": "lower"}})
        self._run.resume(state.global_step)
        self._after = "step"
        self._go_to("step")

    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._log_the_rest()
        self._go_to("step")  # another callback may have called off what was announced

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._unlogged = state.global_step
        if self._run is not None and self._run._is_due(state.global_step):
            stop = self._run.stop
            self._leaves = True
            control.should_save = stop is None or stop.save
            control.should_training_stop = True
        self._announce(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._announce(control)

    def on_log(self, args: Any, state: Any, control: Any, logs: Optional[Dict[str, Any]] = None, **more: Any) -> None:
        if self._run is None:
            return
        self._unlogged = None
        self._run.log(state.global_step, {
            _series_name(key): value for key, value in (logs or {}).items()
            if isinstance(value, (int, float)) and key not in RESERVED
        })

    def on_prediction_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._go_to("evaluate")

    def on_evaluate(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._go_to("checkpoint" if control.should_save else self._after)

    def on_predict(self, args: Any, state: Any, control: Any, *more: Any, **named: Any) -> None:
        self._go_to(self._after)

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if self._run is not None:
            path = os.path.join(args.output_dir, f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}")
            self._run.checkpoint(path, state.global_step)
        self._go_to(self._after)

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._log_the_rest()
        self._after = "end"
        self._go_to("end")
        if self._run is not None and self._leaves:
            self._run.leave()

    def _announce(self, control: Any) -> None:
        """The Trainer evaluates and saves after this, in this order. Its own callback has decided it before."""
        self._after = "end" if control.should_training_stop else "step"
        self._go_to("evaluate" if control.should_evaluate else "checkpoint" if control.should_save else self._after)

    def _go_to(self, section: str) -> None:
        if self._run is not None:
            self._run._go_to(section)

    def _log_the_rest(self) -> None:
        if self._run is not None and self._unlogged is not None:
            self._run.log(self._unlogged)
        self._unlogged = None


def _series_name(key: str) -> str:
    """The Trainer's names as groups: "eval_loss" is plotted with "loss"."""
    return "validation/" + key[len("eval_"):] if key.startswith("eval_") else key
