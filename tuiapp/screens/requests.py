"""What a screen asks the app for: to go elsewhere. The screens themselves are imported when they are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

from trainers.contract.rundir import RunDir

if TYPE_CHECKING:
    from trainers.config.run_config import RunConfig


@dataclass
class OpenRun(Message):
    """Show a run."""

    run: RunDir
    replay: bool = False
    """From its first step at the pace at which it went, not as it stands."""


@dataclass
class RunLaunched(Message):
    """Show a run that has just been started."""

    run: RunDir


@dataclass
class CompareRuns(Message):
    """Show runs side by side."""

    runs: tuple[RunDir, ...]


@dataclass
class CloneRun(Message):
    """Fill the form with a run's configuration."""

    run: RunDir
    config: RunConfig
