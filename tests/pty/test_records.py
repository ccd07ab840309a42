"""Runs deleted and replayed by commands, in a real terminal; a removal that is killed half-way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.recorded import record
from tuiapp.actions.delete import sweep_removed
from tuiapp.library.find import list_runs
from tuiapp.trainers.contract.rundir import RunDir

pytestmark = pytest.mark.nightly

FIRST, SECOND = "20261120T101500-torch-ddp-net-3fa1", "20261120T101400-torch-ddp-net-3fa2"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    record(tmp_path / "runs", FIRST, h.completed())
    record(tmp_path / "runs", SECOND, interrupted.failed())
    return tmp_path / "runs"


def test_a_removal_that_is_killed_leaves_no_half_run(runs: Path) -> None:
    run = RunDir(runs / FIRST)
    for number in range(3000):
        (run.commands / str(number)).touch()
    code = (
        "import sys, pathlib\n"
        "from tuiapp.trainers.contract.rundir import RunDir\n"
        "from tuiapp.actions import delete\n"
        "print('go', flush=True); delete.remove_run(RunDir(pathlib.Path(sys.argv[1])))"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(run.path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    deadline = time.monotonic() + 60
    while run.path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.0005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert [one.run_id for one in list_runs(runs)] == [SECOND]
    sweep_removed(runs)
    assert os.listdir(runs) == [SECOND]
