"""The Runs screen: order, filter, marks, and what each key asks for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Static

from tests import histories as h
from tests.contract.recorded import record, record_checkpoint
from tests.screens.run_app import until
from tests.screens.runs_app import HOME, ListLister, RunsApp, info
from trainers.contract.records.mailbox import take
from trainers.contract.records.runs import RunInfo, summarise
from trainers.contract.rundir import RunDir
from trainers.launch import Resumed
from tuiapp.screens.confirm import Choice
from tuiapp.screens.export_dialog import ExportDialog
from tuiapp.screens.requests import CloneRun, CompareRuns, OpenRun
from tuiapp.widgets.run_details import RunDetails

THREE = [info(3, "failed", reason="rank 1 failed"), info(2, model="mlp"), info(1, "running", backend="jax-pmap")]
SIZES = [(80, 24), (120, 40), (200, 60)]


def words(app: RunsApp, selector: str) -> str:
    return str(app.runs_screen.query_one(selector, Static).content)


async def answered(pilot: Pilot[None], answer: str) -> None:
    await until(pilot, lambda: isinstance(pilot.app.screen, Choice))
    await pilot.pause()
    await pilot.click(f"#{answer}")


@pytest.mark.parametrize("size", SIZES)
async def test_live_runs_stand_on_top(size: tuple[int, int]) -> None:
    app = RunsApp(ListLister(THREE))
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: len(app.rows) == 3)
        assert app.states == ["running", "failed", "completed"]
        assert all(len(row) <= size[0] for row in app.rows)
        assert "3 runs · 1 live" in words(app, "#heading")
        assert THREE[2].directory.run_id in words(app, "RunDetails")
        await pilot.press("down")
        assert "rank 1 failed" in words(app, "RunDetails")


@pytest.mark.parametrize(
    ("lister", "said"),
    [
        (ListLister(None), f"Looking for runs in {HOME} …"),
        (ListLister([]), "No run yet."),
        (
            ListLister([], "Cannot list /home/ada/runs: Permission denied."),
            "✗ Cannot list /home/ada/runs: Permission denied.\nAnother place: --runs-dir",
        ),
    ],
)
async def test_what_stands_in_the_place_of_no_runs(lister: ListLister, said: str) -> None:
    app = RunsApp(lister)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: said in words(app, "#instead"))
        for key in ("enter", "x", "c", "n", "u", "s", "e", "d", "p", "y", "down", "end", "o", "r", "5"):
            await pilot.press(key)
        assert app.asked == []
        assert app.screen is app.runs_screen
    assert lister.calls[0] == "start"
    assert lister.calls[-1] == "close"


async def test_the_cursor_stays_on_its_run() -> None:
    app = RunsApp(ListLister(THREE))
    async with app.run_test() as pilot:
        await until(pilot, lambda: len(app.rows) == 3)
        await pilot.press("end")
        assert app.runs_screen.current == THREE[1]
        app.lister.put(info(4), *THREE)
        await until(pilot, lambda: len(app.rows) == 4)
        assert app.runs_screen.current == THREE[1]
        # A run that is gone leaves its place to the next one.
        app.lister.put(info(4), THREE[0])
        await until(pilot, lambda: len(app.rows) == 2)
        assert app.runs_screen.current == THREE[0]


async def test_sorted_by_the_key_of_a_column_and_the_other_way_round() -> None:
    runs = [info(n, learning_rate=0.01) for n in range(5, 0, -1)]
    app = RunsApp(ListLister(runs))

    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: len(app.rows) == 5)
        await pilot.press("7")
        assert "by loss" in words(app, "#heading")
        ascending = app.rows
        await pilot.press("7")
        assert app.rows == ascending[::-1]
        await pilot.press("r")
        assert app.rows == ascending
        await pilot.press("o")
        assert "by ex/s" in words(app, "#heading")
        # Its title is clicked.
        await pilot.click("RunTable", offset=(5, 0))
        assert "by state" in words(app, "#heading")


async def test_only_runs_with_all_words_are_shown() -> None:
    app = RunsApp(ListLister(THREE))
    async with app.run_test() as pilot:
        await until(pilot, lambda: len(app.rows) == 3)
        await pilot.press("slash", *"jax run", "enter")
        assert app.states == ["running"]
        assert "1 of 3 runs" in words(app, "#heading")
        await pilot.press("slash", *"xx")
        assert words(app, "#instead") == "No run has all these words. Escape shows all."
        await pilot.press("escape")
        assert len(app.rows) == 3
        assert not app.runs_screen.query_one("#filter", Input).display


async def test_marked_runs_are_compared() -> None:
    app = RunsApp(ListLister(THREE))
    async with app.run_test() as pilot:
        await until(pilot, lambda: len(app.rows) == 3)
        await pilot.press("c")
        assert app.asked == []
        await pilot.press("x", "x")
        assert [row[:2] for row in app.rows] == ["a ", "b ", "  "]
        await pilot.press("c")
        await until(pilot, lambda: bool(app.asked))
        assert app.asked == [CompareRuns((THREE[2].directory, THREE[0].directory))]
        await pilot.press("X", "home", "x", "end", "c")
        await until(pilot, lambda: len(app.asked) == 2)
        assert app.asked[1] == CompareRuns((THREE[2].directory, THREE[1].directory))


async def test_more_than_eight_are_not_compared() -> None:
    app = RunsApp(ListLister([info(n) for n in range(9)]))
    async with app.run_test() as pilot:
        await until(pilot, lambda: len(app.rows) == 9)
        await pilot.press(*"xxxxxxxxx", "c")
        await pilot.pause()
        assert app.asked == []
        assert len(app.runs_screen.marked) == 9


async def test_opened_replayed_and_cloned() -> None:
    app = RunsApp(ListLister(THREE))
    async with app.run_test() as pilot:
        await until(pilot, lambda: len(app.rows) == 3)
        await pilot.press("enter", "p", "n")
        await until(pilot, lambda: len(app.asked) == 3)
        run = THREE[2]
        assert run.config is not None
        assert app.asked == [
            OpenRun(run.directory),
            OpenRun(run.directory, replay=True),
            CloneRun(run.directory, run.config),
        ]


async def test_what_does_not_work_for_a_run_is_not_offered() -> None:
    newer = info(1, "newer", problem="its journal has schema 7")
    app = RunsApp(ListLister([newer]))
    async with app.run_test() as pilot:
        await until(pilot, lambda: len(app.rows) == 1)
        assert "schema 7" in words(app, "RunDetails")
        await pilot.press("enter", "p", "n", "u", "s", "e")
        await pilot.pause()
        assert app.asked == []
        assert app.screen is app.runs_screen
        await pilot.press("d")
        await until(pilot, lambda: isinstance(app.screen, Choice))


async def test_outside_text_can_do_nothing_to_the_screen() -> None:
    evil = info(1, "failed", reason="[@click=app.quit]x[/] \x1b]52;c;aGk=\x07end", dataset="npz:/tmp/\x1b[31m[red].npz")
    app = RunsApp(ListLister([evil]))
    async with app.run_test(size=(200, 60)) as pilot:
        await until(pilot, lambda: len(app.rows) == 1)
        assert "[@click=app.quit]x[/] end" in words(app, "RunDetails")
        assert "npz:[red].npz" in app.rows[0]
        assert "\x1b" not in app.rows[0]


@pytest.fixture
def recorded(tmp_path: Path) -> list[RunInfo]:
    """A stopped run with a checkpoint, and a completed one."""
    stopped = record(tmp_path, "20261120T101500-torch-ddp-net-3fa1", h.stopped())
    record_checkpoint(stopped, 58)
    completed = record(tmp_path, "20261120T101400-torch-ddp-net-3fa2", h.completed())
    return [summarise(stopped), summarise(completed)]


async def test_a_run_is_resumed_and_shown(recorded: list[RunInfo]) -> None:
    resumed: list[RunDir] = []

    def resume(run: RunDir) -> Resumed:
        resumed.append(run)
        return Resumed(2, 58, [], 0)

    app = RunsApp(ListLister(recorded), resumer=resume)
    async with app.run_test() as pilot:
        await until(pilot, lambda: len(app.rows) == 2)
        await pilot.press("u")
        await answered(pilot, "resume")
        await until(pilot, lambda: bool(app.asked))
        assert resumed == [recorded[0].directory]
        assert app.asked == [OpenRun(recorded[0].directory)]


async def test_a_run_that_cannot_be_resumed_says_why(recorded: list[RunInfo]) -> None:
    def resume(run: RunDir) -> Resumed:
        raise OSError("the disk is \x1b[31mfull")

    app = RunsApp(ListLister(recorded), resumer=resume)
    async with app.run_test() as pilot:
        await until(pilot, lambda: len(app.rows) == 2)
        await pilot.press("u")
        await answered(pilot, "resume")
        await until(pilot, lambda: any("the disk is full" in note.message for note in app._notifications))
        assert app.asked == []


async def test_runs_are_deleted_once_that_is_said(recorded: list[RunInfo]) -> None:
    app = RunsApp(ListLister(recorded))
    async with app.run_test() as pilot:
        await until(pilot, lambda: len(app.rows) == 2)
        await pilot.press("d")
        await answered(pilot, "keep")
        await until(pilot, lambda: app.screen is app.runs_screen)
        assert recorded[0].directory.path.exists()
        await pilot.press("x", "x", "d")
        await answered(pilot, "delete")
        await until(pilot, lambda: app.lister.calls[-1] == "look" and not recorded[1].directory.path.exists())
        assert not recorded[0].directory.path.exists()


async def test_a_run_that_goes_on_is_stopped_and_not_deleted(recorded: list[RunInfo]) -> None:
    run = recorded[1].directory
    lock = run.take_lock()
    app = RunsApp(ListLister([summarise(run)]))
    async with app.run_test() as pilot:
        await until(pilot, lambda: app.states == ["running"])
        # Its mark makes the question possible; the lock still refuses it.
        await pilot.press("x", "d")
        await until(pilot, lambda: any("still running" in note.message for note in app._notifications))
        await pilot.press("s")
        await answered(pilot, "stop")
        await until(pilot, lambda: app.screen is app.runs_screen)
        await pilot.press("s")
        await answered(pilot, "stop-now")
        await until(pilot, lambda: len(list(run.commands.iterdir())) == 2)
    assert take(run.commands) == ["stop", "stop-now"]
    os.close(lock)


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
        assert "There is no directory" in str(app.screen.query_one("#verdict", Static).content)
        box.value = str(tmp_path / "x.csv")
        await pilot.pause()
        await pilot.press("enter")
        await until(pilot, lambda: any("144 rows" in note.message for note in app._notifications))
    assert len((tmp_path / "x.csv").read_text().splitlines()) == 145


async def test_three_hundred_runs_in_a_small_terminal() -> None:
    app = RunsApp(ListLister([info(n) for n in range(300)]))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(app.rows) > 10)
        await pilot.press("end")
        await pilot.pause()
        assert app.runs_screen.current is not None
        assert app.runs_screen.current.directory.run_id.endswith("012b")
        assert "by started" in words(app, "#heading")
        await pilot.press("pageup", "pageup", "home")
        assert app.runs_screen.query_one(RunDetails).size.height <= 5


async def test_rows_can_be_selected_and_copied() -> None:
    app = RunsApp(ListLister(THREE))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: len(app.rows) == 3)
        await pilot.mouse_down("RunTable", offset=(5, 1))
        await pilot.hover("RunTable", offset=(26, 1))
        await pilot.mouse_up("RunTable", offset=(26, 1))
        await until(pilot, lambda: bool(app.screen.get_selected_text()))
        assert (app.screen.get_selected_text() or "").split() == ["running", "jax-pmap"]
