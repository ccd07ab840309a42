"""The scripted library, and samplers that read it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.kit.fake_nvml import FakeNvml, several
from tuiapp.trainers.contract.events import AnyEvent, decode
from tuiapp.trainers.telemetry.handover import SamplerConfig, encode_config

E = TypeVar("E")

PATIENCE_S = 60.0
"""What a loaded machine may take."""


class Sampling:
    """A sampler's process, and what it has told.

    Args:
        environment: Of the process.
        order: What it is to sample.
    """

    def __init__(self, environment: dict[str, str], order: SamplerConfig) -> None:
        self.events: list[AnyEvent] = []
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tuiapp.trainers.telemetry", encode_config(order)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=environment,
            pass_fds=[] if order.handover_fd is None else [order.handover_fd],
        )

    def wait(self, kind: type[E], which: Callable[[E], bool] = lambda _: True) -> E:
        """The next event of a kind for which something holds."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + PATIENCE_S
        for line in iter(self.process.stdout.readline, b""):
            event = decode(line)
            assert event is not None, line
            self.events.append(event)
            if isinstance(event, kind) and which(event):
                return event
            assert time.monotonic() < deadline, f"no such {kind.__name__}; there are {self.events[-20:]}"
        raise AssertionError(f"it ended; there are {self.events[-20:]}")

    def end(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    """Compiled once."""
    return FakeNvml(tmp_path_factory.mktemp("nvml"), several(2))


@pytest.fixture
def nvml(library: FakeNvml) -> FakeNvml:
    """With two GPUs, to begin with."""
    library.say(several(2))
    return library


@pytest.fixture
def sample(nvml: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Sampling]]:
    """Starts samplers."""
    monkeypatch.setenv("TUIAPP_TELEMETRY_HOST_PIDS", "1")
    started: list[Sampling] = []

    def start(**order: Any) -> Sampling:
        told = {"run_dir": str(tmp_path), "gpus": "all", "interval_s": 0.25, **order}
        started.append(Sampling(nvml.run_environment(), SamplerConfig(**told)))
        return started[-1]

    yield start
    for sampling in started:
        sampling.end()
