"""Ranks that note what they are told, and one that is a process of this machine."""

from __future__ import annotations

import signal
from pathlib import Path

from tuiapp.trainers.run import stacks, wire
from tuiapp.trainers.run.ranks import Rank


class NotingRank(Rank):
    """Notes what it is told."""

    def __init__(self, rank: int, *, agrees: bool = True) -> None:
        super().__init__(rank, 0, agrees=agrees)
        self.told: list[wire.ToRank] = []
        self.signals: list[signal.Signals] = []

    def send(self, message: wire.ToRank) -> None:
        self.told.append(message)

    def kill(self, number: signal.Signals) -> None:
        self.signals.append(number)


class Process(Rank):
    """A process that is asked for its stacks; unless it `hears` it does not write before it gets the signal."""

    def __init__(self, pid: int, directory: Path, *, hears: bool = True) -> None:
        super().__init__(0, pid)
        self.directory, self._hears = directory, hears

    def ask_stacks(self) -> bool:
        return super().ask_stacks() if self._hears else stacks.answers(self.pid)
