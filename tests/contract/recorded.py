"""Run directories as runs leave them behind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainers.contract.config import RunConfig, to_toml
from trainers.contract.events import AnyEvent
from trainers.contract.journal import JournalWriter
from trainers.contract.rundir import RunDir

CONFIG = RunConfig(platform="cpu", devices=2)


def record(runs_dir: Path, run_id: str, events: Sequence[AnyEvent], config: RunConfig = CONFIG) -> RunDir:
    """Write a run's directory; without a process that holds its lock."""
    run = RunDir(runs_dir / run_id)
    run.commands.mkdir(parents=True)
    run.config.write_text(to_toml(config))
    run.lock.touch()
    writer = JournalWriter(run.journal)
    writer.append(events)
    writer.close()
    return run
