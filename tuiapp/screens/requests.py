"""Messages by which screens ask the app to navigate; the target screens are imported when they are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

from tuiapp.trainers.contract.rundir import RunDir

if TYPE_CHECKING:
    from tuiapp.trainers.config.run_config import RunConfig
    from tuiapp.trainers.state.summary import RunInfo


@dataclass
class OpenRun(Message):
    run: RunDir
    replay: bool = False
    """Whether the run is played from its first step at its original pace."""


@dataclass
class RunLaunched(Message):
    run: RunDir


@dataclass
class SweepQueued(Message):
    study: str
    what: str
    """What has begun, as in "6 runs queued"."""


@dataclass
class OpenStudy(Message):
    name: str


@dataclass
class CompareRuns(Message):
    runs: tuple[RunInfo, ...]


@dataclass
class CompareWith(Message):
    """Asks for the list of runs, to choose one that is compared with this."""

    run: RunDir


@dataclass
class CloneRun(Message):
    run: RunDir
    config: RunConfig
