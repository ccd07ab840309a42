"""The devices of a machine within the dashboard, without a run."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from textual.app import App

from tests import histories as h
from tests.screens.run_app import until
from trainers.config.machine import Machine
from trainers.contract.events import AnyEvent, TelemetrySource
from tuiapp.app import TuiApp
from tuiapp.feeds.sampler_feed import SamplerGone
from tuiapp.screens.devices import DevicesScreen
from tuiapp.widgets.device_panel import DevicePanel


class Recorded:
    """Gives out samples that were taken before; what has become of the sampler may be among them."""

    def __init__(self, samples: Sequence[list[AnyEvent]], problem: str = "") -> None:
        self._samples = list(samples)
        if problem:
            self._samples.append([TelemetrySource(source="sampler", problem=problem, **h.at(1.0))])
        self.closed = threading.Event()

    def start(self) -> None:
        """Nothing is to be started."""

    def samples(self) -> Iterator[list[AnyEvent]]:
        yield from self._samples
        self.closed.wait(60)

    def close(self) -> None:
        self.closed.set()


def text_of(app: App[None]) -> str:
    panel = app.screen.query_one(DevicePanel)
    return "\n".join(str(widget.render()) for widget in panel.query("Static"))


async def test_samples_are_shown_as_they_come(tmp_path: Path) -> None:
    feed = Recorded([[h.host_sample(second), *[h.device_sample(gpu, second) for gpu in range(4)]] for second in (1, 2)])
    app = App[None]()
    async with app.run_test(size=(120, 40)) as pilot:
        await app.push_screen(DevicesScreen(tmp_path, lambda: feed))
        await until(pilot, lambda: "3 H200" in text_of(app))
        assert "host memory" in text_of(app)
        assert "▲ hot" in text_of(app) or "▲ slowed: hot" in text_of(app)
        await pilot.press("escape")
        await until(pilot, feed.closed.is_set)


class Crashing(Recorded):
    """Says that it is gone after what it gives out."""

    def samples(self) -> Iterator[list[AnyEvent]]:
        yield from self._samples
        raise SamplerGone("the sampler was killed by SIGSEGV")


class Waiting(Recorded):
    """Gives out nothing before it may."""

    may_go_on = threading.Event()

    def samples(self) -> Iterator[list[AnyEvent]]:
        assert self.may_go_on.wait(60)
        yield from super().samples()


async def test_a_sampler_that_ends_says_why_and_is_started_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuiapp.feeds.kept_sampler.FIRST_PAUSE_S", 0.0)
    first = Crashing([[h.host_sample(1.0)]])
    second = Waiting([[h.host_sample(2.0), h.device_sample(0, 2.0)]])
    samplers = iter([first, second])
    app = App[None]()
    async with app.run_test(size=(120, 40)) as pilot:
        await app.push_screen(DevicesScreen(tmp_path, lambda: next(samplers)))
        await until(pilot, lambda: "▲ sampler: the sampler was killed by SIGSEGV; it is started anew" in text_of(app))
        assert "host memory" in text_of(app)
        second.may_go_on.set()
        await until(pilot, lambda: "H200" in text_of(app) and "▲ sampler" not in text_of(app))
        assert first.closed.is_set()
        await pilot.press("escape")
        await until(pilot, second.closed.is_set)


async def test_it_opens_from_anywhere_once(tmp_path: Path, machine: Machine) -> None:
    app = TuiApp(runs_dir=tmp_path, machine=machine)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("f3", "f3")
        await until(pilot, lambda: isinstance(app.screen, DevicesScreen))
        assert sum(isinstance(screen, DevicesScreen) for screen in app.screen_stack) == 1
        assert "Watch the devices" in [command.title for command in app.get_system_commands(app.screen)]
        await until(pilot, lambda: "host CPU" in text_of(app) or "▲ sampler" in text_of(app))
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, DevicesScreen))
