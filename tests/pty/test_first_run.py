"""What a new user does, in a real terminal with real training."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.processes.harness import watching
from tests.pty.terminal import Terminal
from trainers.contract.events import Steps
from trainers.contract.runs import find_run, list_runs

TUIAPP = [sys.executable, "-P", "-m", "tuiapp"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    places = {name: str(tmp_path / name.lower()) for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "TUIAPP_RUNS_DIR")}
    return {**places, "HOME": str(tmp_path), "LANG": "C.UTF-8"}


def test_open_launch_watch_save_leave_attach_reload(environment: dict[str, str], tmp_path: Path) -> None:
    runs_dir = tmp_path / "tuiapp_runs_dir"
    with Terminal(TUIAPP, environment=environment) as terminal:
        # Open: presets on the left, the form on the right, the command beneath.
        terminal.wait("quickstart")
        terminal.wait(r"2 CPU ranks|\d GPU")
        # Choose the small preset with the keyboard and save it under a name of one's own.
        terminal.press("ctrl+l")
        terminal.wait_for_silence()
        _choose_preset(terminal, "mlp")
        terminal.wait(r"tuiapp run mlp")
        terminal.press("ctrl+s")
        terminal.wait("(?i)save")
        terminal.wait_for_silence()
        terminal.press("mine", "enter")
        terminal.wait(r"tuiapp run mine")
        assert (tmp_path / "xdg_config_home" / "tuiapp" / "presets" / "mine.toml").exists()

        # Launch, and see the loss fall.
        terminal.press("ctrl+r")
        terminal.wait("RUNNING", 60)
        with watching(find_run("latest", runs_dir)) as run:
            first = run.wait(Steps).losses[0]
            terminal.wait(r"accuracy \d\d", 60)
            last = run.of(Steps)[-1].losses[-1]
            assert first is not None
            assert last is not None
            assert last < first
            end = run.end()
            terminal.wait("COMPLETED", 10)
            assert end.status == "completed"
        terminal.press("ctrl+q")
        assert terminal.wait_exit() == 0
        assert terminal.restored()


def test_leave_a_run_running_and_attach_to_it(environment: dict[str, str], tmp_path: Path) -> None:
    runs_dir = tmp_path / "tuiapp_runs_dir"
    with Terminal(TUIAPP, environment=environment) as terminal:
        terminal.wait("quickstart")
        _set_epochs(terminal, "1000")
        terminal.press("ctrl+r")
        terminal.wait("RUNNING", 60)
        with watching(find_run("latest", runs_dir)) as run:
            run.at_step(30)
            terminal.wait(r"epoch +\d+/1000", 20)
            terminal.press("q")
            terminal.wait("Leave running")
            terminal.wait_for_silence()
            terminal.press("enter")
            assert terminal.wait_exit() == 0
            assert terminal.restored()
            assert f"Run {run.run.run_id} goes on" in terminal.raw.decode()
            assert run.run.is_live()

            # Another dashboard picks it up from its first step.
            with Terminal([*TUIAPP, "attach"], columns=80, lines=24, environment=environment) as second:
                second.wait("RUNNING", 20)
                second.wait(r"step +\d+", 20)
                second.press("s")
                second.wait("(?i)stop")
                second.wait_for_silence()
                second.press("enter")
                second.wait("STOPPED", 30)
                end = run.end(1)
                assert run.steps_of(0) == list(range(1, end.summary.steps + 1))
                second.press("q")
                assert second.wait_exit() == 0
    assert len(list_runs(runs_dir)) == 1


@pytest.mark.parametrize("number", [1, 9, 15], ids=["SIGHUP", "SIGKILL", "SIGTERM"])
def test_the_run_goes_on_when_the_dashboard_dies(environment: dict[str, str], tmp_path: Path, number: int) -> None:
    with Terminal(TUIAPP, environment=environment) as terminal:
        terminal.wait("quickstart")
        _set_epochs(terminal, "1000")
        terminal.press("ctrl+r")
        terminal.wait("RUNNING", 60)
        with watching(find_run("latest", tmp_path / "tuiapp_runs_dir")) as run:
            run.at_step(20)
            terminal.process.kill(number)
            terminal.wait_exit()
            assert number == 9 or terminal.restored()
            run.at_step(run.of(Steps)[-1].last_step + 20)
            assert run.steps_of(0)[:20] == list(range(1, 21))


def _choose_preset(terminal: Terminal, name: str) -> None:
    """Walk down the list of presets and choose one; the form's title says which is loaded."""
    for _ in range(10):
        terminal.press("enter")
        terminal.wait_for_silence()
        if re.search(rf"tuiapp run {name}\b", terminal.text):
            return
        terminal.press("ctrl+l", "down")
        terminal.wait_for_silence()
    raise AssertionError(terminal.text)


def _set_epochs(terminal: Terminal, epochs: str) -> None:
    """Walk through the form to the field of that name and change it."""
    for _ in range(120):
        terminal.press("tab")
        terminal.wait_for_silence(0.1)
        if "Epochs" in terminal.cursor_line:
            # On a loaded machine an earlier key may only now be dealt with, and lead on.
            terminal.wait_for_silence(1.0)
            if "Epochs" in terminal.cursor_line:
                break
    terminal.press(epochs)
    terminal.wait(rf"epochs={epochs}\b")
