"""A run's metrics as a directory for TensorBoard: see `trainers.state.tensorboard`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from trainers.contract.journal import JournalReader
from trainers.contract.rundir import RunDir
from trainers.state.tensorboard import EventFiles
from tuiapp.library.exporters import What
from tuiapp.library.exporters.tables import in_table
from tuiapp.library.script_facts import config_of


def write(path: Path, run: RunDir, what: What) -> int:
    """Fills a directory; returns the number of entries."""
    with closing(EventFiles(path, run.run_id, config_of(run), lambda name: in_table(name, what))) as files:
        return sum(map(files.add, JournalReader(run.journal).rest()))
