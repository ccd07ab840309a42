"""A checkpoint handed to a node that does not share the run's directory, so that its ranks can resume from it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from tuiapp.trainers.config.files import make_private, open_own, open_regular
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.run.channel import MAX_KEPT_BYTES
from tuiapp.trainers.run.wire import Part

PART_BYTES = 1 << 20
AHEAD_BYTES = MAX_KEPT_BYTES // 2
"""Most bytes on their way to a node at once."""


def parts(checkpoint: Path) -> Iterator[Part]:
    """Yields a checkpoint's files in parts; raises OSError if one cannot be read."""
    for path in sorted(checkpoint.iterdir()):
        with open(open_regular(path), "rb") as file:
            while data := file.read(PART_BYTES):
                yield Part(path.name, data)
    yield Part("", b"")


class HandedCheckpoint:
    """The one that a node is being given; it replaces those that it was given before."""

    def __init__(self, run: RunDir, name: str) -> None:
        self.path = run.checkpoints / Path(name).name
        shutil.rmtree(run.checkpoints, ignore_errors=True)
        make_private(self.path)

    def take(self, part: Part) -> bool:
        """Adds a part; returns whether the checkpoint is whole. Raises OSError if it cannot be written."""
        if not part.file:
            return True
        path = self.path / Path(part.file).name
        with open_own(path, "ab") as file:
            file.write(part.data)
        return False
