from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.kit.command_line import Command, in_process
from tuiapp.trainers.config.machine import Machine


@pytest.fixture
def tuiapp(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command in this process."""
    return partial(in_process, capsys)


@pytest.fixture
def runs_dir(home: Path) -> Path:
    """Where runs are kept by default; not there yet."""
    return home / "data" / "tuiapp" / "runs"


@pytest.fixture
def small_machine(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tuiapp run` sees two cores and no GPU, whatever there is: as many devices as a test asks for are too many."""
    monkeypatch.setattr("tuiapp.verbs.run.inspect_machine", lambda: machine)
