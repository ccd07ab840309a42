"""A run on several nodes: groups that fold in the ranks' and devices' panels."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from tests import histories as h
from tests import node_histories as nodes
from tests.screens.run_app import LARGE, RunApp, settled, until
from tuiapp.widgets.log_view import LogView


def lines(app: RunApp) -> list[str]:
    return ["".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips()]


def marks(app: RunApp) -> str:
    """The signs of the nodes from top to bottom: ▾ unfolded, ▸ folded."""
    return "".join(mark for line in lines(app) for mark in "▾▸" if f"{mark} " in line and "gpubox" in line)


async def press(pilot: Pilot[None], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await pilot.pause()


@pytest.mark.parametrize("panel", ["2", "3"])
async def test_enter_folds_the_node_under_the_cursor(panel: str) -> None:
    app = RunApp(nodes.running(2, 4))
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        await press(pilot, panel)
        assert marks(app) == "▾▾"
        await press(pilot, "down", "enter")
        assert marks(app) == "▾▸"
        await press(pilot, "up", "enter")
        assert marks(app) == "▸▸"
        await press(pilot, "enter")
        assert marks(app) == "▾▸"


@pytest.mark.parametrize("panel", ["2", "3"])
async def test_many_ranks_are_folded_at_first(panel: str) -> None:
    app = RunApp(nodes.running(4, 32))
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        await press(pilot, panel)
        assert marks(app) == "▸▸▸▸"


async def test_the_cursor_stays_in_sight() -> None:
    app = RunApp(nodes.running(64, 128, gpus=False))
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        await press(pilot, "3", "end")
        await until(pilot, lambda: any("gpubox64" in line for line in lines(app)))
        await press(pilot, "home")
        await until(pilot, lambda: any("▸ 0 " in line for line in lines(app)))


async def test_a_click_folds_a_node_and_chooses_a_rank() -> None:
    app = RunApp(nodes.running(2, 4))
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        await press(pilot, "3")
        await pilot.click("#ranks #rows", offset=(12, 5))
        await pilot.pause()
        assert app.run_screen.query_one(LogView).rank == 3
        await pilot.click("#ranks #rows", offset=(12, 3))
        await pilot.pause()
        assert marks(app) == "▾▸"


async def test_on_one_machine_there_is_nothing_to_fold() -> None:
    app = RunApp(h.running(4))
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        before = lines(app)
        await press(pilot, "3", "enter", "3")
        assert [line for line in before if "rank" in line] == [line for line in lines(app) if "rank" in line]


async def test_more_devices_than_rows_of_an_array() -> None:
    """Each rank's part of it is empty."""
    app = RunApp(h.running(64))
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        assert any("batch  f32[48,28,28,1]" in line for line in lines(app))


async def test_the_last_rank_can_be_scrolled_to() -> None:
    app = RunApp(h.running(64))
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        await press(pilot, "3", "end")
        await until(pilot, lambda: any(" 63  bl cpu" in line for line in lines(app)))


async def test_each_line_of_the_log_names_its_node() -> None:
    app = RunApp(nodes.troubled(4, 8))
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        await press(pilot, "5")
        shown = "\n".join(lines(app))
        assert "n3 r7    rank 7 ready" in shown
        assert "node 2 ▲ node 2 (gpubox03) is not connected" in shown
