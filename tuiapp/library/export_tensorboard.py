"""A run's metrics as a directory for TensorBoard: see `trainers.tensorboard`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from trainers.contract.journal import JournalReader
from trainers.contract.rundir import RunDir
from trainers.tensorboard import EventFiles
from tuiapp.library.script_facts import config_of


def write(directory: Path, run: RunDir, wants: Callable[[str], bool]) -> int:
    """Writes the metrics that `wants` admits; returns the number of entries. Raises OSError."""
    reader, count = JournalReader(run.journal), 0
    with closing(EventFiles(directory, run.run_id, config_of(run), wants)) as files:
        while events := reader.read():
            count += sum(map(files.add, events))
    return count
