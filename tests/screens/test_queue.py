"""The queue on the screens: on top of the list, moved and held by keys; the form asks before it takes their devices."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from textual.app import App
from textual.pilot import Pilot

from tests.kit import histories as h
from tests.kit.configure_app import Launches, until
from tests.kit.configure_app import words as header
from tests.kit.recorded import record
from tuiapp.screens.dialog import Choice
from tuiapp.screens.run import RunScreen
from tuiapp.screens.runs import RunsScreen
from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import About, find_waiting
from tuiapp.trainers.experiments.queue import enqueue
from tuiapp.trainers.state.summary import summarise
from tuiapp.widgets.run_header import RunHeader
from tuiapp.widgets.run_table import RunTable

Start = Callable[..., AbstractAsyncContextManager[Pilot[None]]]
CONFIG = RunConfig(model="mlp", platform="cpu", devices=2)


class List(App[None]):
    """The runs of a directory."""

    def __init__(self, runs_dir: Path) -> None:
        super().__init__()
        self.runs_dir = runs_dir

    def on_mount(self) -> None:
        self.push_screen(RunsScreen(self.runs_dir))

    @property
    def rows(self) -> list[str]:
        table = self.screen.query_one(RunTable)
        lines = [table.render_line(y).text.rstrip() for y in range(1, table.size.height)]
        return [line for line in lines if line]


@pytest.fixture
def queue(tmp_path: Path, machine: Machine) -> tuple[Path, list[RunDir]]:
    """Three that are held, so that nothing starts, and one that has ended."""
    runs_dir = tmp_path / "runs"
    record(runs_dir, h.RUN_ID, h.completed())
    names = ("first", "second", "third")
    return runs_dir, [enqueue(CONFIG, runs_dir, About(name=name), machine=machine, held=True) for name in names]


def names(app: List) -> list[str]:
    return [word for row in app.rows for word in row.split() if word in ("first", "second", "third")]


async def test_the_queue_is_on_top_in_its_order_and_is_moved(queue: tuple[Path, list[RunDir]]) -> None:
    runs_dir, runs = queue
    app = List(runs_dir)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: len(app.rows) == 4)
        assert names(app) == ["first", "second", "third"]
        assert [row.split()[1:3] for row in app.rows[:3]] == [["held", "1"], ["held", "2"], ["held", "3"]]
        assert "completed" in app.rows[3]
        await pilot.press("home", "J")
        await until(pilot, lambda: names(app) == ["second", "first", "third"])
        # Two that are marked are moved together.
        await pilot.press("home", "x", "down", "x", "J")
        await until(pilot, lambda: names(app) == ["third", "second", "first"])
        assert [one.run for one in find_waiting(runs_dir)] == [runs[2], runs[1], runs[0]]
        await pilot.press("end", "X", "K")
        await until(pilot, lambda: bool(app._notifications))
        assert "Only runs that wait in the queue" in next(iter(app._notifications)).message


async def test_a_run_is_cancelled_in_the_queue(queue: tuple[Path, list[RunDir]]) -> None:
    runs_dir, runs = queue
    app = List(runs_dir)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(app.rows) == 4)
        await pilot.press("home", "s")
        await until(pilot, lambda: isinstance(app.screen, Choice))
        assert "It leaves the queue, and ends." in str(app.screen.query_one("#text").render())
        await pilot.press("enter")
        await until(pilot, lambda: summarise(runs[0]).status == "stopped")
    assert [one.run for one in find_waiting(runs_dir)] == runs[1:]


@pytest.mark.nightly
@pytest.mark.parametrize("answer", ["queue", "launch", "cancel"])
async def test_the_form_asks_before_it_takes_what_a_live_run_has(
    start: Start, launches: Launches, tmp_path: Path, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuiapp.trainers.experiments.queue.start_keeper", lambda runs_dir: None)
    runs_dir = tmp_path / "runs"
    live = record(runs_dir, h.RUN_ID, h.completed()[:4])
    lock = live.take_lock()
    async with start(preset="quickstart", runs_dir=runs_dir) as pilot:
        # Said before it is asked.
        await until(pilot, lambda: "! 1 live run uses these devices · " in header(pilot, "#machine"))
        await pilot.press("ctrl+r")
        await until(pilot, lambda: isinstance(pilot.app.screen, Choice))
        words = str(pilot.app.screen.query_one("#text").render())
        assert h.RUN_ID in words
        assert "A queued run starts when they are free." in words
        await pilot.click(f"#{answer}")
        await pilot.app.workers.wait_for_complete()
        if answer == "queue":
            await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen))
            await until(pilot, lambda: "number 1 of 1" in str(pilot.app.screen.query_one(RunHeader).render()))
    queued = [summarise(one.run) for one in find_waiting(runs_dir)]
    assert len(launches.configs) == (answer == "launch")
    assert [info.status for info in queued] == (["queued"] if answer == "queue" else [])
    os.close(lock)
