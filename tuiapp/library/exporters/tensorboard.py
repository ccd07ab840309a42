"""A run's metrics as a directory for TensorBoard: see `tuiapp.trainers.state.tensorboard`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from tuiapp.library.export import config_of
from tuiapp.library.exporters import What
from tuiapp.library.exporters.tables import in_table
from tuiapp.trainers.contract.journal import JournalReader
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.tensorboard import EventFiles


def write(path: Path, run: RunDir, what: What) -> int:
    """Fills a directory; returns the number of entries."""
    with closing(EventFiles(path, run.run_id, config_of(run), lambda name: in_table(name, what))) as files:
        return sum(map(files.add, JournalReader(run.journal).rest()))
