"""What is done with the runs of the list: resumed, deleted, stopped, exported."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from textual.pilot import Pilot
from textual.widgets import Button, Input, Static

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.recorded import CONFIG, record, record_checkpoint
from tests.kit.run_app import until
from tests.kit.runs_app import ListLister, RunsApp
from tuiapp.library.chart_view import change_view
from tuiapp.screens.about_dialog import AboutDialog
from tuiapp.screens.dialog import Choice
from tuiapp.screens.export_dialog import ExportDialog, ReportDialog
from tuiapp.screens.requests import OpenRun
from tuiapp.screens.resume_dialog import ResumeDialog
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import Blemish, RunEnded
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import About, read_about, take_commands
from tuiapp.trainers.launch import Resumed
from tuiapp.trainers.state.summary import RunInfo, summarise

STEPS = make_plan(CONFIG).total_steps
"""Of a run with that configuration."""


async def answered(pilot: Pilot[None], answer: str) -> None:
    await until(pilot, lambda: isinstance(pilot.app.screen, Choice | ResumeDialog))
    await pilot.pause()
    await pilot.click(f"#{answer}")


@pytest.fixture
def recorded(tmp_path: Path) -> list[RunInfo]:
    """A stopped run with a checkpoint, and a completed one; the newest is on top."""
    change_view({"sort": "started"})
    stopped = record(tmp_path, "20261120T101500-torch-ddp-net-3fa1", interrupted.stopped())
    record_checkpoint(stopped, 58)
    completed = record(tmp_path, "20261120T101400-torch-ddp-net-3fa2", h.completed())
    return [summarise(stopped), summarise(completed)]


async def test_a_run_is_resumed_and_shown(recorded: list[RunInfo]) -> None:
    resumed: list[RunDir] = []

    def resume(run: RunDir, config: RunConfig | None) -> Resumed:
        resumed.append(run)
        return Resumed(2, 58, [], 0)

    app = RunsApp(ListLister(recorded), resumer=resume)
    async with app.run_test() as pilot:
        await until(pilot, lambda: len(app.rows) == 2)
        await pilot.press("u")
        await answered(pilot, "accept")
        await until(pilot, lambda: bool(app.asked))
        assert resumed == [recorded[0].directory]
        assert app.asked == [OpenRun(recorded[0].directory)]


async def test_a_run_that_cannot_be_resumed_says_why(recorded: list[RunInfo]) -> None:
    def resume(run: RunDir, config: RunConfig | None) -> Resumed:
        raise OSError("the disk is \x1b[31mfull")

    app = RunsApp(ListLister(recorded), resumer=resume)
    async with app.run_test() as pilot:
        await until(pilot, lambda: len(app.rows) == 2)
        await pilot.press("u")
        await answered(pilot, "accept")
        await until(pilot, lambda: any("the disk is full" in note.message for note in app._notifications))
        assert app.asked == []


async def test_what_mars_a_run_is_accepted(tmp_path: Path) -> None:
    *events, _ = h.completed()
    marred = h.summary(290, 17.5)
    marred.blemishes.append(Blemish(kind="nan", since_step=6, text="NaN in the training loss"))
    end = RunEnded(status="completed", reason="", summary=marred, **h.at(18))
    run = record(tmp_path, "20261120T101500-torch-ddp-net-3fb0", [*events, end])
    app = RunsApp(ListLister([summarise(run)]))
    async with app.run_test() as pilot:
        await until(pilot, lambda: "✓▲ completed" in "".join(app.rows))
        await pilot.press("V")
        await until(pilot, lambda: not summarise(run).blemishes)
        app.lister.put(summarise(run))
        await until(pilot, lambda: "✓ completed" in "".join(app.rows))
        await pilot.press("V")
        await until(pilot, lambda: any("Nothing mars" in note.message for note in app._notifications))


async def test_a_key_that_cannot_be_used_says_why(recorded: list[RunInfo]) -> None:
    run = recorded[1].directory
    lock = run.take_lock()
    app = RunsApp(ListLister([summarise(run), recorded[0]]))
    told = {
        "u": "It cannot be resumed: it has not ended.",
        "d": "It has not ended. Stop it first: s.",
        "X": "No run is marked. x marks one.",
        "h": "Only runs that wait in the queue can be held or moved.",
    }
    async with app.run_test() as pilot:
        await until(pilot, lambda: len(app.rows) == 2 and app.states[0] == "running")
        for key, why in told.items():
            await pilot.press(key)
            await until(pilot, lambda why=why: why in {note.message for note in app._notifications})  # type: ignore[misc]
        await pilot.press("down", "s")
        await until(pilot, lambda: any("nothing to stop" in note.message for note in app._notifications))
    os.close(lock)


async def test_runs_are_deleted_once_that_is_said(recorded: list[RunInfo]) -> None:
    app = RunsApp(ListLister(recorded))
    async with app.run_test() as pilot:
        await until(pilot, lambda: len(app.rows) == 2)
        await pilot.press("d")
        await answered(pilot, "keep")
        await until(pilot, lambda: app.screen is app.runs_screen)
        assert recorded[0].directory.path.exists()
        await pilot.press("x", "down", "x", "d")
        await answered(pilot, "delete")
        await until(pilot, lambda: app.lister.calls[-1] == "look" and not recorded[1].directory.path.exists())
        assert not recorded[0].directory.path.exists()


async def test_marked_runs_are_stopped_resumed_and_named_at_once(recorded: list[RunInfo], tmp_path: Path) -> None:
    live = [record(tmp_path, f"20261120T10130{n}-torch-ddp-net-3fb{n}", h.running(last_step=72)) for n in range(2)]
    locks = [run.take_lock() for run in live]
    again: list[RunDir] = []

    def resume(run: RunDir, config: RunConfig | None) -> Resumed:
        again.append(run)
        return Resumed(2, 58, [], 0)

    app = RunsApp(ListLister([*map(summarise, live), *recorded]), resumer=resume)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: len(app.rows) == 4)
        await pilot.press(*["x", "down"] * 3, "s")
        await until(pilot, lambda: isinstance(app.screen, Choice))
        shown = str(app.screen.query_one("#text", Static).content)
        assert "The rest of the 3 are over, or stopping already." in shown
        assert [run.run_id in shown for run in (*live, recorded[0].directory)] == [True, True, False]
        await answered(pilot, "stop")
        await until(pilot, lambda: app.screen is app.runs_screen)
        await until(pilot, lambda: any("Asked 2 runs to stop" in note.message for note in app._notifications))
        # All of them are stopping: at once, this time.
        await pilot.press("s")
        await answered(pilot, "stop-now")
        await until(pilot, lambda: all(len(list(run.commands.iterdir())) == 2 for run in live))
        await pilot.press("u")
        await until(pilot, lambda: isinstance(app.screen, ResumeDialog))
        lines = str(app.screen.query_one("#who", Static).content).splitlines()
        assert lines[1].startswith(f"✓ {recorded[0].directory.run_id}: from step 58 to ")
        assert lines[0] == f"✗ {live[0].run_id}, {live[1].run_id}: It cannot be resumed: it has not ended."
        await answered(pilot, "accept")
        await until(pilot, lambda: again == [recorded[0].directory])
        await until(pilot, lambda: app.screen is app.runs_screen)
        await pilot.press("i")
        await until(pilot, lambda: isinstance(app.screen, AboutDialog))
        await pilot.press(*"lr", "tab", *"sweep", "enter")
        await until(pilot, lambda: app.screen is app.runs_screen)
        chosen = [*live, recorded[0].directory]
        await until(pilot, lambda: all(read_about(run)[0].group for run in chosen))
        await pilot.press("ctrl+y")
        await until(pilot, lambda: app.clipboard.count("\n") == 2)
    assert [read_about(run)[0] for run in chosen] == [About(tags=("lr",), group="sweep")] * 3
    assert read_about(recorded[1].directory)[0] == About()
    assert [take_commands(run.commands) for run in live] == [["stop", "stop-now"]] * 2
    for lock in locks:
        os.close(lock)


@pytest.mark.nightly
async def test_marked_completed_runs_are_trained_longer_at_once(tmp_path: Path) -> None:
    change_view({"sort": "started"})
    rates, done = (0.1, 0.01), []
    for n, rate in enumerate(rates):
        config = msgspec.structs.replace(CONFIG, learning_rate=rate)
        run = record(tmp_path, f"20261120T10150{n}-torch-ddp-net-3fa{n}", h.completed(), config)
        record_checkpoint(run, STEPS)
        done.append(summarise(run))
    without = summarise(record(tmp_path, "20261120T101400-torch-ddp-net-3fb0", h.completed()))
    again: dict[RunDir, RunConfig | None] = {}

    def resume(run: RunDir, config: RunConfig | None) -> Resumed:
        again[run] = config
        return Resumed(2, 58, [], 0)

    app = RunsApp(ListLister([*done, without]), resumer=resume)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(app.rows) == 3)
        await pilot.press(*["x", "down"] * 3, "u")
        await until(pilot, lambda: isinstance(app.screen, ResumeDialog))
        # The key in which they differ has no field; epochs are twice what they were.
        assert not app.screen.query("#field-learning-rate")
        epochs = app.screen.query_one("#field-epochs Input", Input)
        assert epochs.value == str(2 * CONFIG.epochs)
        said = str(app.screen.query_one("#who", Static).content)
        assert f"✗ {without.directory.run_id}: It cannot be resumed: there is no usable checkpoint." in said
        assert f"to {2 * STEPS}" in said
        assert "Each keeps its own: learning_rate." in said
        epochs.value = str(CONFIG.epochs)
        await until(pilot, lambda: app.screen.query_one("#accept", Button).disabled)
        assert "Enter more epochs" in str(app.screen.query_one("#who", Static).content)
        epochs.value = str(3 * CONFIG.epochs)
        await until(pilot, lambda: not app.screen.query_one("#accept", Button).disabled)
        verdict = app.screen.query_one("#verdict", Static)
        assert str(verdict.content) == "2 of 3 runs go on at once."
        assert app.screen.region.contains_region(app.screen.query_one("#accept").region)
        await pilot.press("enter")
        await until(pilot, lambda: len(again) == 2)
    wanted = [msgspec.structs.replace(CONFIG, learning_rate=rate, epochs=3 * CONFIG.epochs) for rate in rates]
    assert [again[info.directory] for info in done] == wanted


async def test_a_run_is_exported(recorded: list[RunInfo], tmp_path: Path) -> None:
    app = RunsApp(ListLister(recorded))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(app.rows) == 2)
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, ExportDialog))
        box = app.screen.query_one("#path", Input)
        assert box.value == f"{recorded[0].directory.run_id}-steps.csv"
        box.value = str(tmp_path / "nowhere" / "x.csv")
        await pilot.pause()
        assert "does not exist" in str(app.screen.query_one("#verdict", Static).content)
        box.value = str(tmp_path / "x.csv")
        await pilot.pause()
        await pilot.press("enter")
        await until(pilot, lambda: any("144 rows" in note.message for note in app._notifications))
    assert len((tmp_path / "x.csv").read_text().splitlines()) == 145


async def test_a_report_of_the_marked_runs_is_written(
    recorded: list[RunInfo], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "report.html").touch()
    app = RunsApp(ListLister(recorded))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(app.rows) == 2)
        await pilot.press("x", "down", "x", "w")
        await until(pilot, lambda: isinstance(app.screen, ReportDialog))
        box, verdict = app.screen.query_one("#path", Input), app.screen.query_one("#verdict", Static)
        assert box.value == "report-2.html"
        box.value = "report.html"
        await until(pilot, lambda: "report.html exists" in str(verdict.content))
        box.value = "both.html"
        await until(pilot, lambda: str(verdict.content) == f"✓ {tmp_path / 'both.html'}")
        await pilot.press("enter")
        place = f"2 runs: {tmp_path / 'both.html'}"
        await until(pilot, lambda: any(place in note.message for note in app._notifications))
    page = (tmp_path / "both.html").read_text()
    assert all(info.directory.run_id in page for info in recorded)


@pytest.mark.nightly
async def test_one_that_is_stopping_is_left_alone_while_another_is_stopped(tmp_path: Path) -> None:
    live = [record(tmp_path, f"20261120T10130{n}-torch-ddp-net-3fb{n}", h.running(last_step=72)) for n in range(2)]
    locks = [run.take_lock() for run in live]
    app = RunsApp(ListLister([*map(summarise, live)]))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: len(app.rows) == 2)
        await pilot.press("x", "s")
        await answered(pilot, "stop")
        await until(pilot, lambda: any(run.commands.exists() and any(run.commands.iterdir()) for run in live))
        await until(pilot, lambda: app.screen is app.runs_screen)
        await pilot.press("down", "x", "s")
        await answered(pilot, "stop")
        await until(pilot, lambda: app.screen is app.runs_screen)
        await until(pilot, lambda: all(run.commands.exists() and any(run.commands.iterdir()) for run in live))
    assert [take_commands(run.commands) for run in live] == [["stop"], ["stop"]]
    for lock in locks:
        os.close(lock)
