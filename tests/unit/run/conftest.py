"""A reporter with its pipe, and a run's directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.rank_pipe import Pipe
from tuiapp.trainers.contract.rundir import RunDir


@pytest.fixture
def pipe() -> Pipe:
    return Pipe()


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    directory = tmp_path / "20261120T000000-torch-ddp-net-0123"
    directory.mkdir(mode=0o700)
    return RunDir(directory)
