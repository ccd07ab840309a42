"""What the Configure screen's threads do, and what they tell it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from textual.message import Message
from textual.screen import Screen

from trainers.config.machine import Machine, inspect_machine
from trainers.config.run_config import RunConfig
from trainers.contract.rundir import RunDir

Launcher: TypeAlias = Callable[[RunConfig, Path, Machine | None], RunDir]
"""Starts a run: `trainers.launch.launch`, or a test's stand-in."""


class LaunchFailed(Message):
    """A run could not be started."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class MachineInspected(Message):
    """It is known what this machine has, or why that cannot be known."""

    def __init__(self, machine: Machine | None, problem: str = "") -> None:
        super().__init__()
        self.machine = machine
        self.problem = problem


def inspect_for(screen: Screen[Any]) -> None:
    """Look at this machine, in a thread, and tell a screen."""
    try:
        found = MachineInspected(inspect_machine())
    except Exception as error:  # A machine that cannot be looked at is no reason to end; a launch looks again.
        found = MachineInspected(None, f"Cannot look for devices: {error}")
    # The program may have ended meanwhile, and its event loop with it.
    with contextlib.suppress(RuntimeError):
        screen.post_message(found)
