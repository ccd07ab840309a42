"""Reports a Lightning `Trainer`'s run, and stops it and saves checkpoints on request.

    from trainers.integrations.lightning import TuiappCallback, TuiappLogger

    trainer = Trainer(..., logger=TuiappLogger(), callbacks=[TuiappCallback()])

Every rank reports what it logs. A logger does not see the trainer: the callback stops it and saves.
"""

from __future__ import annotations

from argparse import Namespace
from math import isfinite
from pathlib import Path
from typing import Any

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.loggers import Logger
except ImportError:  # the same, by its older name
    from pytorch_lightning import Callback, LightningModule, Trainer
    from pytorch_lightning.callbacks import ModelCheckpoint
    from pytorch_lightning.loggers import Logger

from trainers.tracking import Run, current, init


class TuiappLogger(Logger):
    """Reports metrics, hyperparameters and the checkpoints of `ModelCheckpoint`.

    Args:
        name: Shown beside the run's id.
    """

    def __init__(self, name: str = "") -> None:
        super().__init__()
        self._name = name

    @property
    def experiment(self) -> Run:
        """The run, which begins when it is first wanted: once the ranks know each other."""
        return current(self._name)

    @property
    def name(self) -> str:
        return self._name or "tuiapp"

    @property
    def version(self) -> str:
        return self.experiment.id

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.experiment.log(metrics, step=step)

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *_: Any, **__: Any) -> None:
        self.experiment.config.update(params)

    def after_save_checkpoint(self, checkpoint_callback: ModelCheckpoint) -> None:
        # The last one saved, which need be neither the best nor `last_model_path`, has no public name.
        if path := getattr(checkpoint_callback, "_last_checkpoint_saved", ""):
            self.experiment.checkpoint(path)


class TuiappCallback(Callback):
    """Stops the trainer and saves checkpoints on request, in the run directory unless `directory` is given."""

    def __init__(self, directory: str | None = None) -> None:
        self._directory = directory

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit":
            init()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        total = trainer.estimated_stepping_batches
        current(total_steps=int(total) if isfinite(total) and total > 0 else 0)

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        run = current()
        if run.should_checkpoint():
            directory = self._directory or f"{run.directory}/checkpoints"
            path = Path(directory, f"step-{trainer.global_step:08}.ckpt")
            # All ranks take part: sharded states are saved by all of them, under one name.
            path = trainer.strategy.broadcast(path)
            trainer.save_checkpoint(path)
            if trainer.is_global_zero:
                run.checkpoint(path, step=trainer.global_step)
        if run.should_stop():
            trainer.should_stop = True
