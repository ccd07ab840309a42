"""What pictures are taken of: the real program with one screen, on a machine and a clock that are always the same."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from textual.pilot import Pilot
from textual.screen import Screen

from tests.kit import histories as h
from tests.kit.at_rest import until as until
from tests.kit.run_app import ListFeed
from tests.kit.shown import is_current
from tuiapp import app
from tuiapp.app import TuiApp
from tuiapp.screens.run import RunScreen
from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.config.settings import Settings
from tuiapp.trainers.contract.events import AnyEvent
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.widgets.chart_panel import ChartPanel

SMALL, MEDIUM, LARGE = (80, 24), (120, 40), (200, 60)

RUNS_DIR = Path("/home/ada/runs")
"""Where runs seem to lie; there is nothing."""

TWO_CORES = Machine(
    cpu_cores=2, memory_total_bytes=8 << 30, memory_available_bytes=6 << 30, gpu_problem="no NVIDIA driver here"
)


class Stage(TuiApp):
    """The program with a screen in front.

    Args:
        screen: What is shown; None for Configure.
        theme: dark or light.
        unicode: "off" to draw with ASCII alone.
    """

    CSS_PATH = [Path(app.__file__).parent / path for path in TuiApp.CSS_PATH]  # noqa: RUF012, Textual's type

    def __init__(
        self, screen: Screen[Any] | None = None, *, theme: str = "dark", unicode: str = "on", **given: Any
    ) -> None:
        settings = Settings(theme=f"textual-{theme}", unicode=unicode)
        super().__init__(**{"runs_dir": RUNS_DIR, "machine": TWO_CORES, "settings": settings, **given})
        self._in_front = screen

    def get_default_screen(self) -> Screen[Any]:
        """A screen that has Configure beneath it looks the same without, and is there sooner."""
        return Screen() if self._in_front is not None else super().get_default_screen()

    def on_mount(self) -> None:
        if self._in_front is not None:
            self.push_screen(self._in_front)


def run_screen(
    events: Sequence[AnyEvent], *, now: float = 8.9, lost: bool = False, runs_dir: Path = RUNS_DIR
) -> RunScreen:
    """The Run screen over a list of events.

    Args:
        events: What the run has written.
        now: Seconds since its start.
        lost: Nothing is left of its processes, and it never said that it ended.
        runs_dir: Where its directory lies, if there is one.
    """
    feed = ListFeed(events)
    feed.lost = lost
    feed.removed = not (runs_dir / h.RUN_ID).exists()
    return RunScreen(RunDir(runs_dir / h.RUN_ID), feed, clock=lambda: h.START + now)


def matrix(
    scenes: Iterable[str], *, small: Container[str], light: Container[str] = (), large: Container[str] = ()
) -> list[ParameterSet]:
    """Each scene at 120×40 in the dark theme, and where more than its words differs at other sizes, too.

    The first scene is at all sizes and in the light theme as well. It is compared every day, of the others every fourth
    at one size in turn; the rest is compared nightly, and by hand the light theme and large screens.

    Args:
        scenes: Their names.
        small: Where little room changes the layout: these are at 80×24, too.
        light: Where colour says most: these are in the light theme, too.
        large: Where much room changes the layout: these are at 200×60, too.
    """
    cases: list[ParameterSet] = []
    for place, name in enumerate(scenes):
        pictures = [(MEDIUM, "dark")]
        pictures += [(SMALL, "dark")] if not place or name in small else []
        everyday = pictures[place // 4 % len(pictures)] if place % 4 == 0 else None
        pictures += [(MEDIUM, "light")] if not place or name in light else []
        pictures += [(LARGE, "dark")] if not place or name in large else []
        for size, theme in pictures:
            identity = f"{name}-{size[0]}x{size[1]}-{theme}"
            later = pytest.mark.by_hand if theme == "light" or size == LARGE else pytest.mark.nightly
            marks = () if not place or (size, theme) == everyday else later
            cases.append(pytest.param(name, size, theme, id=identity, marks=marks))
    return cases


async def press(pilot: Pilot[Any], keys: Iterable[str]) -> None:
    """Press keys, each when the one before has been dealt with."""
    for key in keys:
        await pilot.press(key)
        await pilot.pause()


async def folded(pilot: Pilot[Any], screen: RunScreen) -> None:
    """Wait until a run's events are folded and its curves drawn."""
    feed = screen._reader._feed
    assert isinstance(feed, ListFeed)
    await until(pilot, lambda: screen.is_mounted and not feed.events and is_current(screen.query_one(ChartPanel)))
    await pilot.pause()
