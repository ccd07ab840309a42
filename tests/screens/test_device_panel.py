"""The panel of devices within the Run screen."""

from __future__ import annotations

import os
from collections.abc import Sequence
from socket import gethostname

import pytest
from msgspec.structs import replace
from textual.geometry import Size

from tests.kit import device_histories as d
from tests.kit import histories as h
from tests.kit.run_app import RunApp, settled, until
from tuiapp.trainers.contract.events import AnyEvent, RunStarted, TelemetrySource
from tuiapp.widgets.device_panel import DevicePanel
from tuiapp.widgets.text_view import TextView

SMALL, NORMAL, WIDE = (80, 24), (120, 40), (200, 60)


def lines_of(app: RunApp) -> list[str]:
    """What the panel holds, as far as it can be seen without scrolling."""
    panel = app.run_screen.query_one(DevicePanel)
    region = panel.content_region
    strips = app.screen._compositor.render_strips(app.size)
    return [strip.crop(region.x, region.right).text.rstrip() for strip in strips[region.y : region.bottom]]


async def shown(events: Sequence[AnyEvent], size: tuple[int, int], *keys: str) -> list[str]:
    """The panel's lines after some keys."""
    app = RunApp(events, now=43.5)
    async with app.run_test(size=size) as pilot:
        await settled(pilot, app)
        await pilot.press(*keys)
        await until(pilot, lambda: app.run_screen.query_one(DevicePanel).size != Size(0, 0))
        return lines_of(app)


@pytest.mark.nightly
async def test_what_has_failed_is_said_beneath_what_is_known() -> None:
    problem = TelemetrySource(source="sampler", problem="killed by SIGSEGV; started again in 4 s", **h.at(43.2))
    lines = await shown([*d.on_gpus(2), problem], NORMAL)
    assert "▲ sampler: killed by SIGSEGV" in "\n".join(lines)
    waiting = await shown([*h.beginning(2), problem], NORMAL)
    assert waiting[0].startswith("▲ sampler: killed")


@pytest.mark.nightly
async def test_of_a_run_that_is_over_it_is_said_from_when_the_samples_are() -> None:
    over = [*d.on_gpus(8), h.ended("completed", 44.0, step=800, world_size=8)]
    assert [line for line in await shown(over, NORMAL) if line] == [
        line for line in await shown(over[:-1], NORMAL) if line
    ]
    app = RunApp(over)
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot, app)
        await pilot.press("2")
        await pilot.pause()
        panel = app.run_screen.query_one(DevicePanel)
        assert str(panel.border_subtitle).startswith("last sampled at")
        assert "last sampled at" not in "\n".join(lines_of(app)), "once is enough"
        await pilot.resize_terminal(*SMALL)
        await until(pilot, lambda: "last sampled at" in str(panel.query_one(TextView).render()))


async def test_figures_that_change_leave_all_else_in_its_place() -> None:
    app = RunApp(d.on_gpus(2), now=43.5)
    async with app.run_test(size=NORMAL) as pilot:
        await settled(pilot, app)
        before = lines_of(app)
        low = {"utilization_percent": 7.0, "power_w": 88.0, "temperature_c": 9.0, "memory_used_bytes": h.GIB}
        app.feed.events = d.on_gpus(2, always={0: low, 1: low})[-6:]
        await settled(pilot, app)
        after = lines_of(app)
        assert len(before) == len(after)
        columns = [[line.find(unit) for unit in (" %", " W", " °C")] for line in before[:4]]
        assert columns == [[line.find(unit) for unit in (" %", " W", " °C")] for line in after[:4]]


async def test_the_processes_of_this_machine_are_listed_only_while_they_are_on_screen() -> None:
    events = h.running(2)
    here = [replace(event, host=gethostname()) if isinstance(event, RunStarted) else event for event in events]
    app = RunApp(here)
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot, app)
        panel = app.run_screen.query_one(DevicePanel)
        assert panel._reader is None
        await pilot.press("2")
        await until(pilot, lambda: os.getpid() in panel._seen)
        looked = panel._read_at
        panel.show(app.run_screen.state)
        assert panel._read_at == looked
