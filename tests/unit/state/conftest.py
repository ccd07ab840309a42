"""A run's directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuiapp.trainers.contract.rundir import RunDir


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)
