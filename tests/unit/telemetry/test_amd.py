"""AMD's GPUs, by a stand-in for AMD's module: what is asked of it, and what is made of its answers."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.kit import ROOT
from tests.kit.fake_nvml import FakeNvml, needs_compiler, several
from tests.unit.telemetry.conftest import Sampling
from tuiapp.trainers.config.machine import GpuProcess
from tuiapp.trainers.contract.events import DeviceSample

pytestmark = needs_compiler

Start = Callable[..., Sampling]


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests/kit/amd"))


def test_what_a_gpu_tells(sample: Start) -> None:
    told = sample(ranks={2: os.getpid()}).wait(DeviceSample, lambda one: one.uuid == "amd-0")
    assert (told.index, told.name) == (0, "AMD Instinct MI300X")
    assert (told.utilization_percent, told.memory_utilization_percent) == (91, None)
    assert (told.memory_used_bytes, told.memory_total_bytes) == (1 << 30, 192 << 30)
    assert (told.power_w, told.power_limit_w, told.energy_j) == (512, 750, 0)
    clocks = told.sm_clock_mhz, told.sm_clock_limit_mhz, told.memory_clock_mhz
    assert (told.temperature_c, *clocks) == (68, 2100, 2101, 1300)
    assert (told.ecc_corrected, told.ecc_uncorrected, told.throttle_reasons, told.fan_percent) == (3, 0, None, None)
    [process] = told.processes or []
    assert process == GpuProcess(pid=os.getpid(), rank=2, user=process.user, name=process.name, memory_bytes=4096)


def test_one_tells_little_and_one_nothing(sample: Start) -> None:
    sampling = sample()
    little = sampling.wait(DeviceSample, lambda one: one.uuid == "amd-1")
    assert (little.utilization_percent, little.problem) == (91, "")
    assert (little.memory_used_bytes, little.power_w) == (None, None)
    assert sampling.wait(DeviceSample, lambda one: one.uuid == "amd-2").problem == "it does not answer"


def test_beside_nvidias(sample: Start, nvml: FakeNvml) -> None:
    nvml.say(several(1))
    sampling = sample()
    sampling.wait(DeviceSample, lambda one: one.uuid == "GPU-0000")
    sampling.wait(DeviceSample, lambda one: one.uuid == "amd-0")
