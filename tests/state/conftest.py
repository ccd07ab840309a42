"""A run's directory, and patience with the process that reads its journal ahead."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainers.contract.rundir import RunDir
from tuiapp.feeds import ahead


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


@pytest.fixture
def patient_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loaded machine may take long to start a process, and to end one."""
    monkeypatch.setattr(ahead, "PATIENCE_S", 60.0)
    monkeypatch.setattr(ahead, "END_S", 60.0)
