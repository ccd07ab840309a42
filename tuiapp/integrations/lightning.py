"""Reports a Lightning `Trainer`'s run, and stops it and saves checkpoints on request.

    from tuiapp.integrations.lightning import TuiappCallback, TuiappLogger

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

from tuiapp.trainers.script.tracking import Run, current


class TuiappLogger(Logger):
    """Reports metrics, hyperparameters and the checkpoints of `ModelCheckpoint`.

    Args:
        name: Shown beside the run's id.
    """

    def __init__(self, name: str = "") -> None:
        super().__init__()
        self._name = name
        self.fits = True
        """Whether what is logged is of `fit`, where Lightning counts steps from 0."""
        self.evaluates_after: int | None = None
        """The step after which batches are evaluated, while they are: Lightning counts these batches as steps, too."""

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
        values = dict(metrics)
        if self.evaluates_after is not None:
            step = self.evaluates_after
        elif step is not None and "epoch" in values:
            # Lightning's own step; any other, as that of `self.log("step", epoch)`, is the script's.
            step += self.fits
        if not self.fits:
            # Neither `validate` nor `test` begins an epoch.
            values.pop("epoch", None)
        self.experiment.log(values, step=step)

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *_: Any, **__: Any) -> None:
        self.experiment.config.update(params)

    def after_save_checkpoint(self, checkpoint_callback: ModelCheckpoint) -> None:
        # The last one saved, which need be neither the best nor `last_model_path`, has no public name.
        path = getattr(checkpoint_callback, "_last_checkpoint_saved", "")
        step = getattr(checkpoint_callback, "_last_global_step_saved", 0)
        # What `TuiappCallback` has saved after the same step is the one that was asked for.
        if path and step != self.experiment.checkpointed_step:
            self.experiment.checkpoint(path, step=step or None)


class TuiappCallback(Callback):
    """Stops the trainer and saves checkpoints on request, in the run directory unless `directory` is given."""

    def __init__(self, directory: str | None = None) -> None:
        self._directory = directory

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        for logger in _loggers(trainer):
            logger.fits = stage == "fit"
        if stage == "fit":
            current()

    def on_validation_batch_start(self, trainer: Trainer, *_: Any) -> None:
        for logger in _loggers(trainer):
            logger.evaluates_after = trainer.global_step

    def on_validation_epoch_end(self, trainer: Trainer, *_: Any) -> None:
        for logger in _loggers(trainer):
            logger.evaluates_after = None

    on_test_batch_start, on_test_epoch_end = on_validation_batch_start, on_validation_epoch_end

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


def _loggers(trainer: Trainer) -> list[TuiappLogger]:
    return [logger for logger in trainer.loggers if isinstance(logger, TuiappLogger)]
