"""Saves and loads the state that training resumes from, and says when evaluations have been no better for too long.

The training thread hands over copies of its arrays and continues; another thread writes them into a hidden directory,
each file synced, the manifest last; a rename then makes it a checkpoint. A crash at any moment leaves earlier
checkpoints intact. The same holds for the trained model exported at the end.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Set
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from tuiapp.trainers.config.files import open_own
from tuiapp.trainers.config.mesh import MEASURED
from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.config.run_config import best_by, figure_of
from tuiapp.trainers.contract.evaluations import NEVER, Evaluated
from tuiapp.trainers.contract.events import Alert, Checkpoint
from tuiapp.trainers.contract.manifest import (
    MANIFEST,
    MODEL_FILE,
    CheckpointDir,
    Manifest,
    StoredFile,
    best_checkpoint,
    checkpoint_name,
    list_checkpoints,
    read_checkpoint,
)
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.rank import tensor_files
from tuiapp.trainers.rank.reporter import Reporter
from tuiapp.trainers.rank.tensor_files import Tensors, as_float32

NORMALIZATION_FILE = "normalization.json"
STATE_FILE = "state.safetensors"
TRAINED = "trained."
"""Prefix, in the state of a run that averages weights, of those that are trained: its model has the average."""
LOSS_SCALE = "loss_scale."
"""Prefix, in the state of a run in float16, of its loss scale."""


class Checkpoints:
    """A rank's access to its run's checkpoints, resuming from `resume_from`; only rank 0 writes.

    Raises CheckpointError if that is unreadable. Another thread adds to `recorded`, steps that the journal covers.
    """

    def __init__(
        self,
        run: RunDir,
        plan: Plan,
        rank: int,
        report: Reporter,
        recorded: Set[int],
        resume_from: Path | None = None,
    ) -> None:
        self._run, self._plan, self._rank, self._report = run, plan, rank, report
        self._recorded = recorded
        self._writer: threading.Thread | None = None
        checkpoint = read_checkpoint(resume_from) if resume_from else None
        self.resumed = load(checkpoint) if checkpoint else None
        """What this attempt resumes from; None in a new run."""
        measured = checkpoint.manifest.measured if checkpoint and plan.config.shares == MEASURED else ()
        fits = len(measured) == plan.config.devices and not any(share % plan.config.accumulate for share in measured)
        self.measured = measured if fits else ()
        """Each rank's share of the batch, once it is measured: that of the checkpoint, with as many ranks and parts."""
        best, spent = (checkpoint.manifest.best, checkpoint.manifest.since_best) if checkpoint else (NEVER, 0)
        self.patience = Patience(best_by(plan.config), plan.config.early_stop, best, spent)
        if rank == 0 and os.path.isdir(run.checkpoints):
            # What an earlier attempt was writing, or removing, when it died.
            for leftover in run.checkpoints.glob(".*"):
                shutil.rmtree(leftover, ignore_errors=True)

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._wait()

    def save(self, step: int, model: Tensors, state: Tensors, ready: Callable[[], object] = lambda: None) -> None:
        """Saves the state after a step; returns before it is written. Nobody may change the arrays afterwards.

        Waits for the previous checkpoint, so that at most one is held in memory. `model` has weights and running
        statistics, under the framework's own names; `state` all else; `ready` waits until both are copied, and is
        called in another thread.
        """
        if self._rank == 0:
            self._wait()
            evaluated, began = self._report.evaluated, perf_counter()
            result = evaluated[1] if evaluated and evaluated[0] == step else NEVER
            work = step, result, (self.patience.best, self.patience.spent), model, state, ready, began
            writer = threading.Thread(target=self._write, args=work, name="checkpoint")
            try:
                writer.start()
                self._writer = writer
            except RuntimeError:
                # There can be no more threads: training waits for it.
                self._write(*work)

    def export(self, model: Tensors) -> None:
        """Writes the trained model, as in `save`, to `export/model.safetensors`; after an early stop the best one."""
        best = self.best_model()
        self.export_file(MODEL_FILE, lambda path: _write_file(path, tensor_files.encode(best or model)))

    def best_model(self) -> dict[str, npt.NDArray[Any]] | None:
        """Returns the best model after an early stop, to be exported in place of the last; None otherwise.

        None also on ranks that export nothing.
        """
        if self._rank or not self.patience.is_over:
            return None
        self._wait()
        checkpoint = best_checkpoint(list_checkpoints(self._run.checkpoints)[0], best_by(self._plan.config))
        if checkpoint is None or checkpoint.evaluated != self.patience.best:
            text = "the best model was not saved as a checkpoint: the last one is exported in its place"
            self._report.send(Alert(kind="export", text=text))
            return None
        return load(checkpoint).model

    def export_file(self, name: str, write: Callable[[Path], object]) -> None:
        """Writes the trained model atomically to `export/<name>`, and beside it what its inputs are normalized by.

        `write` gets a path that ends with `name`.
        """
        self._export(name, write)
        if (by := self._plan.normalization) is not None:
            self._export(NORMALIZATION_FILE, lambda path: _write_file(path, [msgspec.json.encode(by), b"\n"]))

    def _export(self, name: str, write: Callable[[Path], object]) -> None:
        if self._rank:
            return
        directory = self._run.export
        partial = directory / f".partial-{name}"
        try:
            _make_durably(directory)
            write(partial)
            partial.chmod(0o600)
            _sync(partial)
            partial.replace(directory / name)
            _sync(directory)
        except Exception as error:
            # A model of the user's own may have no way to be saved; it is in the checkpoints all the same.
            partial.unlink(missing_ok=True)
            text = f"the trained model was not exported to {directory / name}: {_why(error)}"
            self._report.send(Alert(kind="export", severity="error", text=text))

    def _wait(self) -> None:
        if self._writer is not None:
            self._writer.join()
            self._writer = None

    def _write(
        self,
        step: int,
        result: Evaluated,
        patience: tuple[Evaluated, int],
        model: Tensors,
        state: Tensors,
        ready: Callable[[], object],
        began: float,
    ) -> None:
        name = checkpoint_name(step)
        pending = self._run.checkpoints / f".{name}.pending"
        try:
            _make_durably(self._run.checkpoints)
            pending.mkdir(mode=0o700)
            ready()
            files = {
                MODEL_FILE: _write_durably(pending / MODEL_FILE, tensor_files.encode(model)),
                STATE_FILE: _write_durably(pending / STATE_FILE, tensor_files.encode(state)),
            }
            manifest = self._describe(step, result, patience, model, files)
            _write_durably(pending / MANIFEST, [msgspec.json.format(msgspec.json.encode(manifest))])
            _sync(pending)
            committed = self._run.checkpoints / name
            _replace_directory(pending, committed)
        except Exception as error:
            # Nobody waits for this thread's exception, and training need not end with it.
            shutil.rmtree(pending, ignore_errors=True)
            text = f"the checkpoint after step {step:,} was not saved: {_why(error)}; earlier checkpoints are intact"
            self._report.send(Alert(kind="checkpoint", severity="error", step=step, text=text))
            return
        # Later steps are those that this attempt has gone back behind: none could be used. They are kept until it
        # overtakes them; counting them would drop what it resumes from.
        checkpoints = [
            checkpoint for checkpoint in list_checkpoints(self._run.checkpoints)[0] if checkpoint.manifest.step <= step
        ]
        config = self._plan.config
        best = best_checkpoint(checkpoints, best_by(config))
        self._report.send(
            Checkpoint(
                step=step,
                epoch=manifest.epoch,
                name=name,
                bytes=sum(file.bytes for file in files.values()),
                seconds=perf_counter() - began,
                best=best is not None and best.manifest.step == step,
            )
        )
        _forget_old(checkpoints, config.keep_checkpoints, best, self._recorded)

    def _describe(
        self,
        step: int,
        result: Evaluated,
        patience: tuple[Evaluated, int],
        model: Tensors,
        files: dict[str, StoredFile],
    ) -> Manifest:
        config, data = self._plan.config, self._plan.data
        best, spent = patience
        return Manifest(
            run_id=self._run.run_id,
            backend=config.backend,
            model=config.model,
            dataset=config.dataset,
            classes=data.classes,
            input_shape=data.input_shape,
            data_checksum=data.checksum,
            init_from=config.init_from,
            freeze=config.freeze,
            normalize=config.normalize,
            normalization=self._plan.normalization,
            optimizer=config.optimizer,
            seed=config.seed,
            shuffle=config.shuffle,
            global_batch_size=config.global_batch_size,
            devices=config.devices,
            step=step,
            epoch=step / self._plan.steps_per_epoch,
            finite=all(np.isfinite(as_float32(array)).all() for array in model.values() if array.dtype.kind in "fV"),
            loss=result.loss,
            accuracy=result.accuracy,
            own=result.own,
            own_by=result.by,
            best=best,
            measured=self.measured,
            since_best=spent,
            files=files,
        )


class Patience:
    """Counts evaluations since the best one, for the key `early_stop`."""

    def __init__(self, by: str, limit: int, best: Evaluated = NEVER, spent: int = 0) -> None:
        """`by` is the figure that decides, `limit` the key `early_stop`; `best` and `spent` go on from a checkpoint."""
        self._by, self._limit = by, limit
        self.best = best
        self.spent = spent
        """Evaluations since the best one."""

    def add(self, evaluated: Evaluated) -> None:
        """Counts an evaluation; one without a finite figure is no better than the best."""
        merit, best_merit = evaluated.merit(self._by), self.best.merit(self._by)
        if merit is not None and (best_merit is None or merit > best_merit):
            self.best, self.spent = evaluated, 0
        else:
            self.spent += 1

    @property
    def reason(self) -> str:
        """Returns why the training ends early."""
        best = self.best.figure(self._by)
        detail = f": the best was {best:.4g}" if best is not None else ""
        name = figure_of(self._by)[0]
        return f"early stop: test {name} was not the best in {self.spent} evaluations in a row{detail}"

    @property
    def is_over(self) -> bool:
        return 0 < self._limit <= self.spent


class Saved(NamedTuple):
    step: int
    model: dict[str, npt.NDArray[Any]]
    """Weights and running statistics, under the framework's own names."""
    state: dict[str, npt.NDArray[Any]]
    """All else: optimizer, random state, what is specific to each rank."""

    def part(self, prefix: str) -> dict[str, npt.NDArray[Any]]:
        """Returns the arrays of the state whose names begin with `prefix`, under the rest of their names."""
        return {name.removeprefix(prefix): array for name, array in self.state.items() if name.startswith(prefix)}


def load(checkpoint: CheckpointDir) -> Saved:
    """Reads a checkpoint's arrays into memory."""
    model, state = (tensor_files.load(checkpoint.path / name) for name in (MODEL_FILE, STATE_FILE))
    return Saved(checkpoint.manifest.step, model, state)


def _write_file(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    with open_own(path, "wb") as file:
        file.writelines(parts)


def _write_durably(path: Path, parts: Iterable[bytes | memoryview]) -> StoredFile:
    digest, size = hashlib.sha256(), 0
    with open_own(path, "xb") as file:
        for part in parts:
            file.write(part)
            digest.update(part)
            size += len(part)
        file.flush()
        os.fsync(file.fileno())
    return StoredFile(bytes=size, sha256=digest.hexdigest())


def _make_durably(directory: Path) -> None:
    """Makes a directory that survives a crash of the machine."""
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        return
    _sync(directory.parent)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _replace_directory(new: Path, old: Path) -> None:
    aside = old.parent / f".{old.name}.old"
    if os.path.exists(old):
        # The same step of an earlier attempt, which this attempt has passed over or gone back behind.
        old.rename(aside)
    new.rename(old)
    _sync(old.parent)
    shutil.rmtree(aside, ignore_errors=True)


def _forget_old(checkpoints: list[CheckpointDir], keep: int, best: CheckpointDir | None, recorded: Set[int]) -> None:
    """Removes all but the newest `keep` checkpoints, the best, and the one from which a run that dies now would resume.

    That is the newest of the `recorded`, or else the oldest. Non-finite ones are ignored. The newest come first.
    """
    finite = [checkpoint for checkpoint in checkpoints if checkpoint.manifest.finite]
    covered = [checkpoint for checkpoint in finite if checkpoint.manifest.step in recorded]
    kept = {checkpoint.path for checkpoint in (*finite[:keep], *checkpoints[:1], *(covered[:1] or finite[-1:]))}
    if best is not None:
        kept.add(best.path)
    for checkpoint in checkpoints:
        if checkpoint.path not in kept:
            # Under a hidden name a half-removed one is not taken for a checkpoint.
            gone = checkpoint.path.with_name(f".{checkpoint.path.name}.old")
            with contextlib.suppress(OSError):
                checkpoint.path.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
