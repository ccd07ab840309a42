"""Much that comes at once, a long run, runs deleted and replayed, in a real terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.bench.fold import RUN_ID, write_long_run
from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.recorded import record
from tests.kit.terminal import READY, Terminal
from tuiapp.actions.delete import sweep_removed
from tuiapp.library.find import list_runs
from tuiapp.trainers.contract.rundir import RunDir

pytestmark = pytest.mark.nightly


TUIAPP = [sys.executable, "-P", "-m", "tuiapp"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    places = {name: str(tmp_path / name.lower()) for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "TUIAPP_RUNS_DIR")}
    return {**places, "HOME": str(tmp_path), "LANG": "C.UTF-8"}


def test_the_focus_moved_200_times_is_painted_a_few_times(environment: dict[str, str]) -> None:
    with Terminal(TUIAPP, environment=environment) as terminal:
        terminal.wait(READY)
        terminal.wait_for_silence()
        before = len(terminal.raw)
        # What follows the tabs is painted after them; a cursor that blinks leaves no silence to wait for.
        terminal.press("\t" * 200, "ctrl+s")
        terminal.wait("Save preset")
        painted = len(terminal.raw) - before
        print(f"\n200 tabs: {painted:,} bytes written")
        # The whole screen is 40 kB.
        assert painted < 400_000
        terminal.press("escape")
        terminal.wait_gone("Save preset")
        terminal.press("\t" * 200, "ctrl+q")
        assert terminal.wait_exit() == 0
        assert terminal.restored()


def test_a_focus_that_moves_paints_only_what_changes(environment: dict[str, str]) -> None:
    with Terminal(TUIAPP, environment=environment) as terminal:
        terminal.wait(READY)
        terminal.press("\t")
        terminal.wait_for_silence(1.0, 60)
        before = len(terminal.raw)
        for _ in range(5):
            terminal.press("\t")
            terminal.wait_for_silence(0.5, 60)
        painted = len(terminal.raw) - before
        print(f"\n5 tabs within the form: {painted:,} bytes written")
        assert painted < 20_000


def test_100_000_steps_of_8_ranks(tmp_path: Path, home: Path) -> None:
    run = write_long_run(tmp_path / RUN_ID)
    with Terminal([sys.executable, "-P", "-m", "tuiapp", "attach", str(run.path)]) as terminal:
        terminal.wait(r"100,000/100,000|COMPLETED[\s\S]*100,000", 60)
        # The highest mark, not what is left of it.
        status = Path(f"/proc/{terminal.process.pid}/status").read_text()
        assert int(status.split("VmHWM:")[1].split()[0]) / 1024 < 150
        terminal.press("ctrl+q")
        assert terminal.wait_exit() == 0


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
