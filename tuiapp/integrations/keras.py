"""Reports a Keras `fit`, and stops it and saves models on request.

    from tuiapp.integrations.keras import TuiappCallback

    model.fit(..., callbacks=[TuiappCallback()])

A batch's metrics are, as Keras gives them, means over the epoch so far; `val_loss` becomes `val/loss`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from threading import Lock

import keras

from tuiapp.trainers.script.tracking import Run, current


class TuiappCallback(keras.callbacks.Callback):
    """Saves the model in the run directory, or where `path` says: `models/{step}.keras`."""

    async_safe = True
    """Keras reads the metrics of a batch in other threads then, so that training does not wait for the device."""

    def __init__(self, path: str = "") -> None:
        super().__init__()
        self._path = path
        self._run = Run()
        self._batches_per_call = 1
        self._steps: int | None = None
        """Steps of an epoch; None if not known."""
        self._epochs: int | None = None
        self._begins = False
        self._step = 0
        """The last step reported, over all calls of `fit`."""
        self._epoch = self._epoch_start = 0
        self._save_last = False
        self._lock = Lock()
        self._arrived: dict[int, tuple[int, Mapping[str, float]]] = {}
        self._next = 0
        self._batch_names: set[str] = set()

    def on_train_begin(self, logs: Mapping[str, float] | None = None) -> None:
        # Asking for `self.model` copies JAX's state back to it: not in every step, nor in another thread.
        self._batches_per_call = getattr(self.model, "steps_per_execution", 1)
        # A training loop of one's own need not say how long it is, nor compile the model.
        params = self.params or {}
        self._epochs, self._steps = params.get("epochs"), params.get("steps")
        optimizer = getattr(self.model, "optimizer", None)
        config = {"epochs": self._epochs, "optimizer": optimizer and optimizer.get_config()}
        self._run = current(config={"model": self.model.name} | {key: value for key, value in config.items() if value})
        # Another `fit` continues the run.
        self._step, self._begins = self._run.step, True

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        if self._begins:
            self._begins = False
            # With `initial_epoch`, after those that an earlier process has trained.
            self._step = self._step or epoch * (self._steps or 0)
            if self._epochs and self._steps:
                current(total_steps=self._step + (self._epochs - epoch) * self._steps)
        self._epoch, self._epoch_start, self._next = epoch + 1, self._step, 0

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        save, stop = self._run.should_checkpoint(), self._run.should_stop()
        # Keras stops after the batch that begins here: what is saved then holds that one too.
        if stop:
            self.model.stop_training = True
        self._save_last |= save and stop
        if save and not stop:
            self._save(self._epoch_start + batch)

    def on_train_batch_end(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        # In any order, from several threads; with steps_per_execution for the last batch of several.
        with self._lock:
            done = min(batch + 1, self._steps or batch + 1)
            self._arrived[batch // self._batches_per_call] = done, logs or {}
            while self._next in self._arrived:
                done, values = self._arrived.pop(self._next)
                self._next += 1
                self._step = self._epoch_start + done
                self._batch_names |= values.keys()
                self._run.log({"epoch": self._epoch} | dict(values), step=self._step)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        news = {name: value for name, value in (logs or {}).items() if name not in self._batch_names}
        grouped = {f"val/{name[4:]}" if name.startswith("val_") else name: value for name, value in news.items()}
        self._run.log({"epoch": epoch + 1} | grouped, step=self._step)
        if self._save_last:
            self._save_last = False
            self._save(self._step)

    def _save(self, step: int) -> None:
        if self._run.rank:
            return
        path = Path(self._path.format(step=step) or f"{self._run.directory}/checkpoints/step-{step:08}.keras")
        path.parent.mkdir(parents=True, exist_ok=True)
        self.model.save(path)
        self._run.checkpoint(path, step=step)
