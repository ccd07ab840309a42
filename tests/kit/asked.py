"""A process of this machine, as a watchdog and a dump of stacks see it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tuiapp.trainers.contract.process_identity import is_stopped
from tuiapp.trainers.run import stacks


@dataclass
class Asked:
    pid: int
    directory: Path
    hears: bool = True
    """Whether it writes before it gets the signal."""

    def ask_stacks(self) -> bool:
        return stacks.ask(self.pid) if self.hears else stacks.answers(self.pid)

    def is_stopped(self) -> bool:
        return is_stopped(self.pid)
