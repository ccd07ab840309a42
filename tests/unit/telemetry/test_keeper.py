"""The keeper over real samplers, whose driver crashes, hangs and comes back."""

from __future__ import annotations

import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from tests.kit.fake_nvml import FakeNvml, gpu, needs_compiler, several
from tests.unit.telemetry.conftest import PATIENCE_S
from tuiapp.trainers.contract.events import Alert, DeviceSample, Event, HostSample, RankSample, TelemetrySource
from tuiapp.trainers.telemetry import keeper
from tuiapp.trainers.telemetry.handover import SamplerConfig
from tuiapp.trainers.telemetry.keeper import SamplerKeeper

pytestmark = needs_compiler

E = TypeVar("E")

WITH_SHORT_LIMITS = """
import os, sys
from tuiapp.trainers.telemetry import sampler
sampler.CALL_LIMIT_S, sampler.OPEN_LIMIT_S = 1.0, float(os.environ["OPEN_LIMIT_S"])
from tuiapp.trainers.telemetry.__main__ import main
main()
"""
"""A library is found and loaded when it is opened, which a busy machine may take long over."""


class Kept:
    """A keeper with the loop that a supervisor gives it."""

    def __init__(self, nvml: FakeNvml, directory: Path, **order: Any) -> None:
        self.events: list[Event] = []
        self._selector = selectors.DefaultSelector()
        told = {"run_dir": str(directory), "gpus": "all", "interval_s": 0.25, "ranks": {0: os.getpid()}, **order}
        self.keeper = SamplerKeeper(
            SamplerConfig(**told),
            nvml.run_environment(),
            lambda: (directory / "log").open("ab"),
            self.events.append,
            lambda fd, react: self._selector.register(fd, selectors.EVENT_READ, react) and None,
            lambda fd: self._selector.unregister(fd) and None,
            [sys.executable, "-P", "-c", WITH_SHORT_LIMITS],
        )

    def wait(self, kind: type[E], which: Callable[[E], bool] = lambda _: True, *, after: int = 0) -> E:
        """Serve the keeper until it has said something, which may be said already."""
        deadline = time.monotonic() + PATIENCE_S
        seen = after
        while True:
            for event in self.events[seen:]:
                if isinstance(event, kind) and which(event):
                    return event
            seen = len(self.events)
            assert time.monotonic() < deadline, f"no such {kind.__name__}; there are {self.events[-20:]}"
            for key, _ in self._selector.select(0.05):
                key.data()
            self.keeper.advance(time.monotonic())

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def mark(self) -> int:
        return len(self.events)


@pytest.fixture
def keep(nvml: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Kept]]:
    monkeypatch.setenv("OPEN_LIMIT_S", "30")
    monkeypatch.setattr(keeper, "FIRST_PAUSE_S", 0.1)
    monkeypatch.setattr(keeper, "BAN_S", 3.0)
    started: list[Kept] = []

    def start(**order: Any) -> Kept:
        started.append(Kept(nvml, tmp_path, **order))
        return started[-1]

    yield start
    for kept in started:
        kept.keeper.end()
    psutil.wait_procs(samplers(), PATIENCE_S)
    assert samplers() == []


def samplers() -> list[psutil.Process]:
    """Those that run."""
    return [child for child in psutil.Process().children() if _samples(child)]


def _samples(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and WITH_SHORT_LIMITS in process.cmdline()
    except psutil.Error:
        return False


def test_a_killed_sampler_is_started_anew_and_that_is_told_once(keep: Callable[..., Kept]) -> None:
    kept = keep()
    kept.wait(DeviceSample)
    os.kill(samplers()[0].pid, signal.SIGKILL)
    # It may have been killed within the library, which then gets the blame.
    gone = kept.wait(TelemetrySource, lambda one: bool(one.problem))
    assert "SIGKILL" in gone.problem
    mark = kept.mark
    kept.wait(DeviceSample, after=mark)
    back = kept.wait(TelemetrySource, lambda one: one.source == gone.source and not one.problem, after=mark)
    assert back.problem == ""
    begun, over = kept.of(Alert)
    assert (begun.ended, over.ended, begun.kind) == (False, True, over.kind)
    assert "training continues" in begun.text


@pytest.mark.nightly
def test_a_library_that_crashes_is_left_alone_and_all_else_sampled_on(
    keep: Callable[..., Kept], nvml: FakeNvml
) -> None:
    nvml.say(several(2, energy_mj=7_000_000))
    kept = keep()
    kept.wait(DeviceSample, lambda one: one.index == 0)
    nvml.say(several(2, energy_mj=7_200_000))
    kept.wait(DeviceSample, lambda one: one.index == 0 and one.energy_j == 200)
    nvml.say(
        gpu("GPU-0000", "Fake 0", energy_mj=7_200_000)
        + gpu("GPU-0001", "Fake 1", "fault nvmlDeviceGetTemperature crash")
    )
    once = kept.wait(TelemetrySource, lambda one: one.source == "NVML" and bool(one.problem))
    assert once.problem == "crashed the sampler, which died of SIGSEGV; it is retried"
    twice = kept.wait(TelemetrySource, lambda one: "disabled" in one.problem)
    assert "SIGSEGV" in twice.problem
    mark = kept.mark
    for _ in range(3):
        kept.wait(HostSample, after=kept.mark)
        kept.wait(RankSample, after=mark)
    nvml.say(several(2, energy_mj=7_900_000))
    again = kept.wait(DeviceSample, lambda one: one.index == 0, after=mark)
    assert again.mono - twice.mono >= 2.5
    kept.wait(TelemetrySource, lambda one: one.source == "NVML" and not one.problem, after=mark)
    # What was counted before is kept.
    assert again.energy_j == 200
    assert [(one.kind, one.ended) for one in kept.of(Alert) if one.kind != "power"] == [
        ("telemetry-NVML", False),
        ("telemetry-NVML", True),
    ]


@pytest.mark.nightly
def test_a_call_that_blocks_for_30_s(keep: Callable[..., Kept], nvml: FakeNvml) -> None:
    kept = keep()
    kept.wait(DeviceSample, lambda one: one.index == 1)
    began = time.monotonic()
    nvml.say(gpu("GPU-0000", "Fake 0", "fault nvmlDeviceGetPowerUsage hang 30") + gpu("GPU-0001", "Fake 1"))
    told = kept.wait(TelemetrySource, lambda one: bool(one.problem))
    assert told.problem == "did not answer within 1 s; it is retried"
    kept.wait(HostSample, after=kept.mark)
    kept.wait(TelemetrySource, lambda one: "disabled" in one.problem)
    kept.wait(HostSample, after=kept.mark)
    if time.monotonic() - began < 25:
        nvml.say(several(2))
        assert kept.wait(DeviceSample, lambda one: one.index == 0, after=kept.mark).power_w == 310.5


@pytest.mark.nightly
def test_a_stopped_sampler_is_replaced(keep: Callable[..., Kept], monkeypatch: pytest.MonkeyPatch) -> None:
    kept = keep(gpus="")
    kept.wait(HostSample)
    os.kill(samplers()[0].pid, signal.SIGSTOP)
    with monkeypatch.context() as short:
        # For the stopped one alone: the next may take longer to start.
        short.setattr(keeper, "SILENT_S", 1.0)
        assert "reported nothing" in kept.wait(TelemetrySource).problem
    kept.wait(HostSample, after=kept.mark)


def test_alerts_of_what_is_sampled(keep: Callable[..., Kept], nvml: FakeNvml) -> None:
    nvml.say(several(1) + gpu("GPU-0001", "Fake 1", "fault * return 15"))
    kept = keep()
    begun = kept.wait(Alert)
    assert (begun.kind, begun.severity, begun.ended) == ("gpu-lost", "error", False)
    assert (begun.device, begun.text) == ("at place 1", "GPU 1 does not answer: GPU is lost")
