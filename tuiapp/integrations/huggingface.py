"""Reports a Hugging Face `Trainer`'s run, and stops it and saves checkpoints on request.

    from tuiapp.integrations.huggingface import TuiappCallback

    trainer = Trainer(..., callbacks=[TuiappCallback()])

Metrics keep their names, `eval_loss` becomes `eval/loss`; what the trainer says at the end of training is in the run's
summary.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trainers.script.tracking import current


def _is_default(args: TrainingArguments, key: str) -> bool:
    field = args.__dataclass_fields__.get(key)
    return field is not None and getattr(args, key) == field.default


class TuiappCallback(TrainerCallback):
    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        config = args.to_sanitized_dict()
        current(args.run_name or "", config, state.max_steps, [key for key in config if _is_default(args, key)])

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        run = current()
        control.should_save |= run.should_checkpoint()
        control.should_training_stop |= run.should_stop()

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
        grouped = {name.replace("_", "/", 1) if name.startswith("eval_") else name: values[name] for name in values}
        run.log(grouped, step=state.global_step)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if state.is_world_process_zero:
            current().checkpoint(Path(args.output_dir) / f"checkpoint-{state.global_step}", step=state.global_step)
