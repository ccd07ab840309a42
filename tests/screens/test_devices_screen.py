"""The devices of a machine within the dashboard, without a run."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import Popen

import psutil
import pytest
from textual.app import App

from tests.kit import histories as h
from tests.kit.run_app import until
from tuiapp.feeds.sampler_feed import SamplerFeed
from tuiapp.screens.devices import DevicesScreen
from tuiapp.screens.dialog import Choice
from tuiapp.screens.pickers import ProcessList
from tuiapp.trainers.contract.events import AnyEvent, Event, TelemetrySource
from tuiapp.widgets.device_panel import DevicePanel


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
