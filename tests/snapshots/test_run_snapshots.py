"""Pictures of the Run screen, with a clock that stands still."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from textual.pilot import Pilot

from tests import histories as h
from tests.screens.run_app import RunApp
from trainers.contract.events import AnyEvent
from tuiapp.widgets.loss_chart import LossChart

CASES: dict[str, Callable[[], list[AnyEvent]]] = {
    "running": h.running,
    "failed": h.failed,
    "completed": h.completed,
    "stopped": h.stopped,
    "stopping": lambda: h.stopped()[:-2],
}


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


async def settle(pilot: Pilot[Any]) -> None:
    """Wait until everything is folded and drawn."""
    app = pilot.app
    assert isinstance(app, RunApp)
    chart = app.run_screen.query_one(LossChart)
    for _ in range(500):
        if not app.feed.events and app.messages and chart.is_current:
            break
        await pilot.pause(0.02)
    await pilot.pause()


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", CASES)
def test_run_screen(name: str, size: tuple[int, int], snap_compare: Any) -> None:
    assert snap_compare(RunApp(CASES[name]()), terminal_size=size, run_before=settle)


@pytest.mark.parametrize("key", ["2", "3", "4", "5"])
def test_panels_at_80_by_24(key: str, snap_compare: Any) -> None:
    async def choose(pilot: Pilot[Any]) -> None:
        await settle(pilot)
        await pilot.press(key)
        await pilot.pause()

    assert snap_compare(RunApp(h.running(4, gpus=True)), terminal_size=(80, 24), run_before=choose)


def test_eight_gpus_with_room(snap_compare: Any) -> None:
    assert snap_compare(RunApp(h.running(8, gpus=True)), terminal_size=(200, 60), run_before=settle)


def test_before_the_first_event(snap_compare: Any) -> None:
    assert snap_compare(RunApp([]), terminal_size=(120, 40), run_before=settle)


def test_light_theme(snap_compare: Any) -> None:
    app = RunApp(h.with_nan())
    app.theme = "textual-light"
    assert snap_compare(app, terminal_size=(120, 40), run_before=settle)
