"""Devices in the dashboard: of a machine without a run, and within the Run screen, on several nodes too."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from socket import gethostname
from subprocess import Popen

import msgspec
import psutil
import pytest
from msgspec.structs import replace
from textual.app import App
from textual.geometry import Size
from textual.pilot import Pilot

from tests.kit import device_histories as d
from tests.kit import histories as h
from tests.kit import node_histories as nodes
from tests.kit.run_app import SMALL, RunApp, settled, until
from tuiapp.feeds.sampler_feed import SamplerFeed
from tuiapp.screens.devices import DevicesScreen
from tuiapp.screens.dialog import Choice
from tuiapp.screens.pickers import ProcessList
from tuiapp.trainers.contract.events import AnyEvent, Event, RunStarted, TelemetrySource
from tuiapp.widgets.device_panel import DevicePanel
from tuiapp.widgets.text_view import TextView


class Recorded(SamplerFeed):
    """Gives out samples that were taken before; what has become of the sampler may be among them."""

    def __init__(self, samples: Sequence[list[AnyEvent]], problem: str = "") -> None:
        self._recorded: list[Event] = [event for sample in samples for event in sample]
        if problem:
            self._recorded.append(TelemetrySource(source="sampler", problem=problem, **h.at(1.0)))
        self.closed = False

    def read(self, timeout_s: float = 0.0) -> list[Event]:
        events, self._recorded = self._recorded, []
        return events

    def close(self) -> None:
        self.closed = True


def text_of(app: App[None]) -> str:
    panel = app.screen.query_one(DevicePanel)
    return "\n".join(str(widget.render()) for widget in panel.query("TextView"))


async def test_samples_are_shown_as_they_come(tmp_path: Path) -> None:
    feed = Recorded([[h.host_sample(second), *[h.device_sample(gpu, second) for gpu in range(4)]] for second in (1, 2)])
    app = App[None]()
    async with app.run_test(size=(120, 40)) as pilot:
        await app.push_screen(DevicesScreen(tmp_path, feed))
        await until(pilot, lambda: "3 H200" in text_of(app))
        assert "host memory" in text_of(app)
        assert "▲ hot" in text_of(app) or "▲ slowed: hot" in text_of(app)
        await pilot.press("escape")
        await until(pilot, lambda: feed.closed)


async def test_a_process_is_ended_after_asking(tmp_path: Path) -> None:
    feed = Recorded([[h.host_sample(1), h.device_sample(0, 1)]])
    app = App[None]()
    with Popen([sys.executable, "-c", "import time; time.sleep(600)", mark := f"mark-{os.getpid()}"]) as process:
        try:
            async with app.run_test(size=(120, 40)) as pilot:
                await app.push_screen(DevicesScreen(tmp_path, feed))
                panel = app.screen.query_one(DevicePanel)
                await until(pilot, lambda: any(row.pid == process.pid for row in panel.processes))
                await pilot.press("s")
                await until(pilot, lambda: isinstance(app.screen, ProcessList))
                await pilot.press(*mark, "enter")
                await until(pilot, lambda: isinstance(app.screen, Choice))
                await pilot.press("escape")
                await until(pilot, lambda: isinstance(app.screen, DevicesScreen))
                assert process.poll() is None, "it was not answered"
                await pilot.press("s")
                await until(pilot, lambda: isinstance(app.screen, ProcessList))
                await pilot.press(*mark, "enter")
                await until(pilot, lambda: isinstance(app.screen, Choice))
                await pilot.press("right", "enter")
                assert await asyncio.to_thread(process.wait, 60) == -signal.SIGTERM
        finally:
            process.kill()


@pytest.mark.nightly
async def test_a_sampler_that_ends_says_why_and_is_started_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuiapp.trainers.telemetry.keeper.FIRST_PAUSE_S", 0.3)
    feed = SamplerFeed(tmp_path, 0.25)
    app = App[None]()
    async with app.run_test(size=(120, 40)) as pilot:
        await app.push_screen(DevicesScreen(tmp_path, feed))
        for _ in range(2):
            await until(pilot, lambda: "host memory" in text_of(app) and "died of" not in text_of(app))
            _sampler().kill()
            # It may have been killed while it looked for a driver, which then gets the blame.
            await until(pilot, lambda: "died of SIGKILL" in text_of(app))
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, DevicesScreen))
    assert not [child for child in psutil.Process().children() if "tuiapp.trainers.telemetry" in child.cmdline()]


def _sampler() -> psutil.Process:
    """The one that runs: an earlier one may not be reaped yet."""
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if "tuiapp.trainers.telemetry" in child.cmdline():
                return child
    raise AssertionError("no sampler runs")


NORMAL, WIDE = (120, 40), (200, 60)


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
