"""What users do, each story over the real program in a real terminal."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.harness import START_S, watching
from tests.kit.recorded import CONFIG, record
from tests.kit.terminal import READY, Terminal
from tuiapp.library.find import find_run, list_runs
from tuiapp.library.presets import presets_dir
from tuiapp.trainers.contract.events import RunEnded, StopRequested
from tuiapp.trainers.contract.rundir import RunDir

TUIAPP = [sys.executable, "-P", "-m", "tuiapp"]


def launch(terminal: Terminal, preset: str, status: str = "RUNNING") -> None:
    """Load a preset by a click and launch it; its run is shown then."""
    terminal.wait(READY)
    terminal.wait(rf"{preset}\b")
    terminal.wait_for_silence()
    terminal.click(rf"{preset}\b")
    terminal.wait(rf"tuiapp run {preset}\b")
    terminal.press("ctrl+r")
    terminal.wait(status, START_S)


@pytest.mark.usefixtures("no_framework")
def test_a_run_from_a_preset_to_its_end(runs_dir: Path) -> None:
    with Terminal(TUIAPP, lines=45) as terminal:
        launch(terminal, "brief", "RUNNING|COMPLETED")
        with watching(find_run("latest", runs_dir)) as run:
            assert run.end().status == "completed"
            terminal.wait("COMPLETED")
            terminal.wait(r"step +40/40")
            losses = run.losses(0)
            assert 0 < losses[-1] < losses[0]
        terminal.press("escape")
        terminal.wait("Launch")
        terminal.press("q")
        assert terminal.wait_exit() == 0
        assert terminal.restored()


@pytest.mark.nightly
@pytest.mark.usefixtures("no_framework")
def test_keys_typed_while_the_screen_changes_reach_the_new_one(runs_dir: Path) -> None:
    with Terminal(TUIAPP, lines=45) as terminal:
        launch(terminal, "brief", "RUNNING|COMPLETED")
        terminal.wait("COMPLETED")
        terminal.press("escape")
        # The form is painted part by part.
        terminal.wait(r"Epochs          \d+")
        terminal.click(r"(?<=Epochs          )\d+")
        terminal.wait_for_cursor("Epochs  ")
        terminal.press("ctrl+r", "5", "/", "needle")
        terminal.wait("only lines with “needle”", START_S)
        terminal.wait("COMPLETED")
        for run in list_runs(runs_dir):
            with watching(run) as watched:
                assert watched.end().status == "completed"
        terminal.press("escape")
        # "g" right behind escape would be Alt+G: the log shows all lines once escape has come through.
        terminal.wait("run +◆ completed")
        terminal.press("g", "/compl")
        terminal.wait("2 runs")
        terminal.wait(r"│ +compl")
        terminal.press("ctrl+q")
        assert terminal.wait_exit() == 0


@pytest.mark.nightly
def test_a_changed_value_changes_the_command_and_is_kept_as_a_preset() -> None:
    with Terminal(TUIAPP, lines=45) as terminal:
        terminal.wait(READY)
        terminal.wait(r"\d CPU ranks|\d GPU")
        terminal.wait_for_silence()
        assert re.search(r"\$ tuiapp run quickstart +│", terminal.text)
        terminal.click(r"(?<=Epochs          )\d+")
        terminal.wait_for_cursor("Epochs  ")
        terminal.press("end", "ctrl+u")
        terminal.wait("no command: fix Epochs first")
        terminal.press("8")
        terminal.wait(r"\$ tuiapp run quickstart --set epochs=8")
        terminal.press("ctrl+s")
        terminal.wait("Save")
        terminal.wait_for_silence()
        terminal.press("eight", "enter")
        terminal.wait(r"\$ tuiapp run eight +│")
        assert "epochs = 8" in (presets_dir() / "eight.toml").read_text()
        terminal.press("ctrl+q")
        assert terminal.wait_exit() == 0


@pytest.mark.usefixtures("no_framework")
def test_stop_and_save_then_resume(runs_dir: Path) -> None:
    with Terminal(TUIAPP, lines=45) as terminal:
        launch(terminal, "endless")
        with watching(find_run("latest", runs_dir)) as run:
            run.at_step(10)
            terminal.wait(r"step +\d\d")
            terminal.press("s")
            terminal.wait("Stop this run")
            # A live run's screen is never silent for long.
            terminal.wait_for_silence(0.05)
            terminal.press("enter")
            stopped = run.end()
            assert stopped.status == "stopped"
            terminal.wait("STOPPED")
            terminal.wait("u Resume")

            terminal.press("u")
            terminal.wait("from step")
            terminal.wait_for_silence()
            terminal.press("enter")
            terminal.wait("RUNNING", START_S)
            run.at_step(stopped.summary.steps + 3)
            assert run.steps_of(0)[: stopped.summary.steps + 3] == list(range(1, stopped.summary.steps + 4))

            # Quitting asks; this time the run is stopped with it.
            terminal.press("q")
            terminal.wait("continues after you quit")
            terminal.wait_for_silence(0.05)
            terminal.press("tab", "enter")
            assert terminal.wait_exit() == 0
            run.wait(StopRequested, lambda event: event.time > stopped.time)
            run.wait(RunEnded, lambda event: event.time > stopped.time)
    assert len(list_runs(runs_dir)) == 1


@pytest.mark.usefixtures("no_framework")
def test_leave_a_run_running_and_attach_to_it(runs_dir: Path) -> None:
    with Terminal(TUIAPP, lines=45) as terminal:
        launch(terminal, "endless")
        with watching(find_run("latest", runs_dir)) as run:
            run.at_step(10)
            terminal.press("q")
            terminal.wait("continues after you quit")
            terminal.wait_for_silence(0.05)
            terminal.press("enter")
            assert terminal.wait_exit() == 0
            assert terminal.restored()
            assert f"Run {run.run.run_id} continues" in terminal.raw.decode()
            assert run.run.is_live()

            # Another dashboard picks it up from its first step, and leaves it without a question: it was not its own.
            with Terminal([*TUIAPP, "attach"], columns=80, lines=24) as second:
                second.wait("RUNNING")
                seen = second.wait(r"step +[\d,]+")
                assert seen
                second.press("2")
                second.wait("host CPU|GPU")
                second.press("5")
                second.wait("started on cpu")


def recorded(runs_dir: Path) -> list[RunDir]:
    """Two runs that are over, with other learning rates; the second failed."""
    return [
        record(runs_dir, f"20261120T10150{n}-torch-ddp-net-000{n}", events, replace(CONFIG, learning_rate=0.1**n))
        for n, events in ((1, h.completed()), (2, interrupted.failed()))
    ]


@pytest.mark.nightly
def test_compare_two_runs_and_begin_one_like_them(runs_dir: Path) -> None:
    recorded(runs_dir)
    with Terminal(TUIAPP) as terminal:
        terminal.wait("Launch")
        terminal.press("ctrl+g")
        terminal.wait("2 runs")
        terminal.wait("completed")
        terminal.press("x", "down", "x")
        terminal.wait("2 marked")
        terminal.press("c")
        terminal.wait("Compare 2 runs")
        terminal.wait(r"state +✓ completed +✖ failed")
        terminal.wait(r"learning_rate +0\.1 +0\.01")
        # A part of them larger, and what each had come to there.
        terminal.press("+", "+")
        terminal.wait(r"showing 25 %")
        terminal.press("0", "v")
        terminal.wait(r"step \d+ · paused")
        terminal.press("\x1b[1;2D", "\x1b[1;2D")
        terminal.wait(r"step \d+ +\d+\.\d+ % +–")
        terminal.press("v")
        terminal.press("m")
        terminal.wait("step time")
        terminal.press("down", "enter")
        terminal.wait("test loss  by step")
        # Back, and from the completed one into the form.
        terminal.press("escape")
        terminal.wait("2 marked")
        terminal.press("home", "a")
        terminal.wait("--like 20261120T101501")
        terminal.press("ctrl+q")
        assert terminal.wait_exit() == 0
        assert terminal.restored()


@pytest.mark.nightly
def test_replay_a_run(runs_dir: Path) -> None:
    recorded(runs_dir)
    with Terminal(TUIAPP) as terminal:
        terminal.wait("Launch")
        terminal.press("ctrl+g")
        terminal.wait("completed")
        terminal.press("home", "p")
        terminal.wait("REPLAY ×1")
        terminal.wait(r"[1-9]\d?s of 17s")
        terminal.press(" ")
        terminal.wait("❚❚ REPLAY")
        # From its beginning, however far it had come by then.
        terminal.press(*[","] * 20, *["."] * 8)
        terminal.wait(r"step +1\d\d/290")
        assert "RUNNING" in terminal.text
        terminal.press(" ", *["."] * 20)
        terminal.wait("COMPLETED")
        # Nothing was done to the run by that.
        terminal.press("q")
        assert terminal.wait_exit() == 0
    with Terminal([*TUIAPP, "replay", "20261120T101501", "--speed", "64"], columns=80, lines=24) as terminal:
        terminal.wait("REPLAY ×64")
        terminal.wait("COMPLETED")


@pytest.mark.nightly
def test_delete_a_run(runs_dir: Path) -> None:
    kept, removed = recorded(runs_dir)
    with Terminal(TUIAPP, columns=80, lines=24) as terminal:
        terminal.wait("Launch")
        terminal.press("ctrl+g")
        terminal.wait("failed")
        # The best is on top.
        terminal.press("end", "d")
        terminal.wait("Delete")
        terminal.wait("Keep")
        terminal.wait_for_silence()
        terminal.press("escape")
        terminal.wait_gone("Keep")
        terminal.wait("2 runs")
        assert removed.path.exists()
        terminal.press("d")
        terminal.wait("Keep")
        terminal.wait_for_silence()
        terminal.press("tab", "enter")
        terminal.wait("Runs +1 run ")
        assert list_runs(runs_dir) == [kept]
        assert not removed.path.exists()
        terminal.press("q")
        assert terminal.wait_exit() == 0
