"""What stands on the terminal is what the screen is: every key's changes are painted, whole."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path
from typing import Any

import pyte
import pytest
from msgspec.structs import replace
from textual._compositor import CompositorUpdate
from textual.app import App
from textual.pilot import Pilot
from textual.screen import Screen

from tests.kit import histories as h
from tests.kit.at_rest import come_to_rest
from tests.kit.configure_app import Start
from tests.kit.recorded import CONFIG, record
from tests.kit.run_app import RunApp, settled
from tests.kit.runs_app import ListLister, RunsApp, info
from tuiapp.terminal.exact_painting import ExactCompositor
from tuiapp.trainers.contract.rundir import default_runs_dir

pytestmark = pytest.mark.nightly

ANYWHERE = ["tab", "shift+tab", "down", "up", "left", "right", "pagedown", "pageup", "home", "end"]
ANYWHERE += ["enter", "escape", "space", "slash", "question_mark"]
RUN_KEYS = [*ANYWHERE, *"12345678Gmrytv[]lz0wbnNf", "f2"]
PROGRAM_KEYS = [*ANYWHERE, *"cCmG48PuRdeintwvyzBfsSxk19a[]", "comma", "plus", "minus", "backspace"]
PROGRAM_KEYS += ["f1", "f2", "f5", "f6", "ctrl+g", "ctrl+o", "ctrl+p", "ctrl+l", "ctrl+y", "ctrl+z"]
RUNS_KEYS = [*ANYWHERE, *"sSfzcbBvmt", "f2", "backspace"]

KEYS = 40
WAITS_S = (0.0, 0.2, 1.0)
"""What a timer still changes is painted then."""

ONE = [(1, (120, 40))]
MANY = [(0, (60, 16)), *((seed, size) for seed in range(2, 10) for size in ((60, 16), (80, 24), (120, 40), (200, 60)))]
WALKS = [*ONE, *(pytest.param(*walk, marks=pytest.mark.by_hand) for walk in MANY)]


async def walk(pilot: Pilot[Any], keys: list[str], seed: int) -> None:
    """Presses keys at random, and compares the terminal with the whole screen after each."""
    app: App[Any] = pilot.app
    draw, pressed = random.Random(seed), list[str]()
    terminal = pyte.Screen(*app.size)
    stream = pyte.Stream(terminal)

    def show(screen: Screen[Any], update: object) -> None:
        if isinstance(update, CompositorUpdate) and not app._batch_count:
            stream.feed(update.render_segments(app.console))

    app._display = show  # type: ignore[method-assign,assignment]
    stream.feed(whole_screen(app))
    for _ in range(KEYS):
        pressed.append(draw.choice(keys))
        await pilot.press(pressed[-1])
        for wait in WAITS_S:
            await asyncio.sleep(wait)
            await come_to_rest(app)
            if app._exit:
                return
            compositor = app.screen._compositor
            due = compositor._dirty_regions.copy()
            whole = pyte.Screen(*app.size)
            pyte.Stream(whole).feed(whole_screen(app))
            compositor._dirty_regions |= due
            if lines_of(terminal) == lines_of(whole):
                break
        assert lines_of(terminal) == lines_of(whole), pressed


def whole_screen(app: App[Any]) -> str:
    """What paints the whole screen, with what shows through from beneath."""
    compositor = app.screen._compositor
    # It is painted elsewhere: what the terminal has is known still.
    known = dict(getattr(compositor, "painted", {}))
    update = compositor.render_update(full=True, screen_stack=app._background_screens)
    if isinstance(compositor, ExactCompositor):
        compositor.painted.update(known)
    assert isinstance(update, CompositorUpdate)
    return update.render_segments(app.console)


def lines_of(screen: pyte.Screen) -> list[str]:
    """Characters, and below each line their colours and styles."""
    lines = []
    for y in range(screen.lines):
        cells = [screen.buffer[y][x] for x in range(screen.columns)]
        lines += ["".join(cell.data for cell in cells), str([cell[1:] for cell in cells])]
    return lines


@pytest.mark.parametrize(("seed", "size"), WALKS)
async def test_the_program(start: Start, seed: int, size: tuple[int, int], tmp_path: Path) -> None:
    for number in range(4):
        events = h.completed() if number % 2 else h.running()
        config = replace(CONFIG, learning_rate=0.1 / (number + 1))
        record(default_runs_dir(), f"20261120T10150{number}-torch-ddp-net-000{number}", events, config)
    # A report's name may be typed.
    with contextlib.chdir(tmp_path):
        async with start(size=size) as pilot:
            await walk(pilot, PROGRAM_KEYS, seed)


@pytest.mark.parametrize(("seed", "size"), WALKS)
async def test_a_run(seed: int, size: tuple[int, int]) -> None:
    app = RunApp(h.running())
    async with app.run_test(size=size) as pilot:
        await settled(pilot, app)
        await walk(pilot, RUN_KEYS, seed)


@pytest.mark.parametrize(("seed", "size"), WALKS)
async def test_the_runs(seed: int, size: tuple[int, int]) -> None:
    app = RunsApp(ListLister([info(number, learning_rate=0.1 / (number + 1)) for number in range(40)]))
    async with app.run_test(size=size) as pilot:
        await walk(pilot, RUNS_KEYS, seed)
