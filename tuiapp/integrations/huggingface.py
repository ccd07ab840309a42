"""Reports a Hugging Face `Trainer`'s run, and stops it and saves checkpoints on request.

    from tuiapp.integrations.huggingface import TuiappCallback

    trainer = Trainer(..., callbacks=[TuiappCallback()])

Metrics keep their names, but `eval_loss` becomes `eval/loss` and `test_loss` `test/loss`; what the trainer says at the
end of training is in the run's summary.
"""

from __future__ import annotations

from dataclasses import MISSING, is_dataclass
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from tuiapp.trainers.script.tracking import current


def _is_unset(args: TrainingArguments, key: str) -> bool:
    """Whether nobody set a key: it has its default, an empty value where nothing is one, or is worked out of others."""
    field = args.__dataclass_fields__.get(key)
    if field is None:
        return True
    value = getattr(args, key)
    is_empty = not value and field.default in (None, "", "none", MISSING)
    if is_dataclass(value) and not isinstance(value, type):
        return bool(value == type(value)())
    return is_empty or bool(value == field.default)


class TuiappCallback(TrainerCallback):
    def __init__(self) -> None:
        self._stopping = False

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        config = args.to_sanitized_dict()
        current(args.run_name or "", config, state.max_steps, [key for key in config if _is_unset(args, key)])

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        run = current()
        control.should_save |= run.should_checkpoint()
        if run.should_stop():
            self._stopping = control.should_training_stop = True
            # It may take longer than a stop waits.
            control.should_evaluate = False

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        # Called wherever training stops.
        if self._stopping:
            control.should_evaluate = control.should_save = False

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        run = current()
        values = dict(logs or {})
        if "train_runtime" in values:
            run.summary.update({name: values.pop(name) for name in list(values) if name.startswith("train_")})
            values.pop("total_flos", None)
        if not state.global_step:
            # An evaluation before the first epoch.
            values.pop("epoch", None)
        groups = ("eval_", "test_")
        grouped = {name.replace("_", "/", 1) if name.startswith(groups) else name: values[name] for name in values}
        run.log(grouped, step=state.global_step)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if state.is_world_process_zero:
            current().checkpoint(Path(args.output_dir) / f"checkpoint-{state.global_step}", step=state.global_step)
