"""Run directories as runs leave them behind."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tuiapp.trainers.config.datasets import DATASETS
from tuiapp.trainers.config.plan import make_plan, write_plan
from tuiapp.trainers.config.run_config import RunConfig, to_toml
from tuiapp.trainers.contract.events import AnyEvent
from tuiapp.trainers.contract.journal import JournalWriter
from tuiapp.trainers.contract.manifest import MANIFEST, Manifest, StoredFile, checkpoint_name
from tuiapp.trainers.contract.rundir import RunDir

CONFIG = RunConfig(platform="cpu", devices=2)


def record(runs_dir: Path, run_id: str, events: Sequence[AnyEvent], config: RunConfig = CONFIG) -> RunDir:
    """Write a run's directory; without a process that holds its lock."""
    run = RunDir(runs_dir / run_id)
    run.commands.mkdir(parents=True)
    run.config.write_text(to_toml(config))
    write_plan(run.plan, make_plan(config))
    run.lock.touch()
    writer = JournalWriter(run.journal)
    writer.append(events)
    writer.close()
    return run


def record_checkpoint(run: RunDir, step: int, config: RunConfig = CONFIG, **more: Any) -> Path:
    """Write a whole checkpoint, whose weights are no weights."""
    directory = run.checkpoints / checkpoint_name(step)
    directory.mkdir(parents=True)
    data = f"weights after step {step}".encode()
    for name in ("model.safetensors", "state.safetensors"):
        (directory / name).write_bytes(data)
    stored = StoredFile(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    dataset = DATASETS[config.dataset]
    values: dict[str, Any] = {
        "run_id": run.run_id,
        "backend": config.backend,
        "model": config.model,
        "dataset": config.dataset,
        "classes": dataset.classes,
        "input_shape": dataset.input_shape,
        "optimizer": config.optimizer,
        "seed": config.seed,
        "global_batch_size": config.global_batch_size,
        "devices": config.devices,
        "step": step,
        "epoch": step / make_plan(config).steps_per_epoch,
        "files": dict.fromkeys(("model.safetensors", "state.safetensors"), stored),
    }
    (directory / MANIFEST).write_bytes(msgspec.json.encode(Manifest(**{**values, **more})))
    return directory
