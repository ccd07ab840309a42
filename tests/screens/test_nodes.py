"""A run on several nodes: groups that fold in the ranks' and devices' panels."""

from __future__ import annotations

import msgspec
import pytest
from textual.pilot import Pilot

from tests.kit import node_histories as nodes
from tests.kit.run_app import SMALL, RunApp, settled, until
from tuiapp.trainers.contract.events import RunStarted
from tuiapp.widgets.device_panel import DevicePanel


def lines(app: RunApp) -> list[str]:
    return ["".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips()]


def marks(app: RunApp) -> str:
    """The signs of the nodes from top to bottom: ▾ unfolded, ▸ folded."""
    return "".join(mark for line in lines(app) for mark in "▾▸" if f"{mark} " in line and "gpubox" in line)


async def press(pilot: Pilot[None], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await pilot.pause()


async def test_among_all_panels_the_devices_of_a_node_unfold() -> None:
    app = RunApp(nodes.running(4, 32))
    async with app.run_test(size=(160, 50)) as pilot:
        await settled(pilot, app)
        app.run_screen.query_one(DevicePanel).focus()
        await press(pilot, "down", "enter")
        # The ranks' nodes are folded still.
        assert any("▸ 1 8–15 " in line for line in lines(app))
        assert any("▾ 1 gpubox02 " in line for line in lines(app))
        assert any("i 0  █" in line for line in lines(app))
        assert not any("a 0  █" in line for line in lines(app))


@pytest.mark.nightly
@pytest.mark.parametrize("keys", [("2",), ("f3",)])
async def test_large_the_panel_shows_all_of_the_chosen_node(keys: tuple[str, ...]) -> None:
    app = RunApp(nodes.running(4, 8))
    async with app.run_test(size=(200, 60)) as pilot:
        await settled(pilot, app)
        await press(pilot, *keys)
        for place, sign in enumerate(("▾▸▸▸", "▸▾▸▸")):
            assert marks(app) == sign
            shown = lines(app)
            assert [line.split()[2] for line in shown if " H200 " in line and "GPU  " in line] == ["ac"[place]]
            assert any("host CPU" in line for line in shown)
            ranks = [word for line in shown if "python" in line for word in (line.split()[2:5],)]
            assert ranks == [[str(4121 + rank), "rank", str(rank)] for rank in (2 * place, 2 * place + 1)]
            await press(pilot, "down")
        await press(pilot, "enter")
        assert marks(app) == "▸▸▸▸"
        assert not any("host CPU" in line for line in lines(app))
        await press(pilot, "up", "enter")
        assert marks(app) == "▸▾▸▸"
        await press(pilot, "escape")
        assert any("1 loss" in line for line in lines(app))


@pytest.mark.nightly
async def test_the_list_is_never_longer_than_the_nodes_of_a_resumed_run() -> None:
    app = RunApp(nodes.running(4, 8))
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot, app)
        await press(pilot, "2", "end")
        begun = next(event for event in nodes.running(2, 8) if isinstance(event, RunStarted))
        app.feed.events += [msgspec.structs.replace(begun, attempt=2, resumed_from=0)]
        await until(pilot, lambda: len(app.run_screen.state.nodes) == 2)
        await settled(pilot, app)
        await press(pilot, "down", "up")
        assert any("▾ 0 gpubox" in line for line in lines(app))
        assert [line.split()[1] for line in lines(app) if line.startswith(" ▸ ")] == ["1"]
