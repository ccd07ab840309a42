"""GPUs that are lost, come back, or tell what no GPU can; drivers that hang, or have none."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.kit.fake_nvml import FakeNvml, gpu, needs_compiler, several
from tests.unit.telemetry.conftest import Sampling
from tuiapp.trainers.contract.events import Alert, DeviceSample, HostSample, RankSample, TelemetrySource
from tuiapp.trainers.telemetry import sampler
from tuiapp.trainers.telemetry.handover import Handover
from tuiapp.trainers.telemetry.sampler import Guarded
from tuiapp.trainers.telemetry.source import Gpu, SourceError

pytestmark = needs_compiler

Start = Callable[..., Sampling]


@pytest.mark.nightly
def test_host_and_ranks_are_sampled_on_while_a_call_hangs(nvml: FakeNvml, sample: Start) -> None:
    sampling = sample(ranks={0: os.getpid()})
    sampling.wait(DeviceSample, lambda one: one.index == 1)
    nvml.say(gpu("GPU-0000", "Fake 0", "fault nvmlDeviceGetPowerUsage hang 600"))
    meanwhile: list[HostSample] = []
    while len(meanwhile) < 12:
        sampling.wait(HostSample)
        # The call hangs from the last sample of a GPU on.
        gpus = [number for number, one in enumerate(sampling.events) if isinstance(one, DeviceSample)]
        meanwhile = [one for one in sampling.events[gpus[-1] :] if isinstance(one, HostSample)]
    ranks = [one for one in sampling.events[gpus[-1] :] if isinstance(one, RankSample)]
    assert len(ranks) >= len(meanwhile) - 1
    seconds = meanwhile[-1].mono - meanwhile[0].mono
    print(f"{len(meanwhile)} samples of the host and {len(ranks)} of a rank in {seconds:.1f} s of a call that hangs")


@pytest.mark.nightly
def test_a_call_that_was_slow_holds_up_its_gpus_alone(nvml: FakeNvml, sample: Start) -> None:
    sampling = sample()
    sampling.wait(DeviceSample)
    nvml.say(gpu("GPU-0000", "Slow", "fault nvmlDeviceGetPowerUsage hang 1", temperature=77))
    sampling.wait(DeviceSample, lambda one: one.temperature_c == 77)
    # A host that waited for its GPUs would never be sampled more than once between two of theirs.
    between = 0
    while between < 2:
        told = len(sampling.events)
        sampling.wait(DeviceSample, lambda one: one.temperature_c == 77)
        between = sum(isinstance(one, HostSample) for one in sampling.events[told:])


def test_a_gpu_that_is_lost_and_comes_back(nvml: FakeNvml, sample: Start) -> None:
    sampling = sample()
    sampling.wait(DeviceSample, lambda one: one.index == 1)
    nvml.say(several(1) + gpu("GPU-0001", "Fake 1", "fault * return 15"))
    lost = sampling.wait(DeviceSample, lambda one: bool(one.problem))
    assert (lost.index, lost.uuid, lost.problem) == (1, "GPU-0001", "GPU is lost")
    assert (lost.utilization_percent, lost.memory_used_bytes, lost.energy_j) == (None, None, None)
    # The other one goes on.
    assert sampling.wait(DeviceSample, lambda one: one.index == 0).utilization_percent == 42
    nvml.say(several(2))
    assert sampling.wait(DeviceSample, lambda one: one.index == 1 and not one.problem).utilization_percent == 42


def test_figures_that_no_gpu_has_are_not_available(nvml: FakeNvml, sample: Start) -> None:
    """A driver that does not know may give -1, which NVML's types make the largest number of."""
    wild = dict.fromkeys(
        ["utilization", "memory_utilization", "memory_total", "memory_used", "power_mw", "power_limit_mw", "energy_mj",
         "temperature_limit", "sm_clock", "sm_clock_limit", "memory_clock", "performance_state", "fan", "ecc_corrected",
         "ecc_uncorrected"], -1,
    )  # fmt: skip
    nvml.say(gpu("GPU-wild", "Wild", **wild))
    told = sample().wait(DeviceSample)
    figures = (
        told.utilization_percent, told.memory_utilization_percent, told.memory_used_bytes, told.memory_total_bytes,
        told.power_w, told.power_limit_w, told.energy_j, told.temperature_limit_c, told.sm_clock_mhz,
        told.sm_clock_limit_mhz, told.memory_clock_mhz, told.performance_state, told.fan_percent, told.ecc_corrected,
        told.ecc_uncorrected,
    )  # fmt: skip
    assert set(figures) == {None}
    rates = dict.fromkeys(["pcie_rx_bytes", "pcie_tx_bytes", "nvlink_rx_kib", "nvlink_tx_kib"], -1)
    nvml.say(gpu("GPU-wild", "Wild", temperature=-1, reasons=-1, **rates))
    sampling = sample()
    for _ in range(3):
        told = sampling.wait(DeviceSample)
    assert (told.temperature_c, told.throttle_reasons, told.energy_j is None) == (None, None, False)
    assert {told.pcie_rx_bytes_per_s, told.pcie_tx_bytes_per_s, told.nvlink_rx_bytes_per_s} == {None}


def test_a_driver_of_two_versions_says_what_to_do(nvml: FakeNvml, sample: Start) -> None:
    nvml.say("fault nvmlInitWithFlags return 18\n")
    assert "different versions: reboot" in sample().wait(TelemetrySource).problem


class Source:
    """A library whose GPUs change."""

    name, no_gpus = "Stand-in", "none"

    def __init__(self, *listed: list[Gpu]) -> None:
        self._listed = list(listed)

    def open(self) -> list[Gpu]:
        return self._listed.pop(0) if len(self._listed) > 1 else self._listed[0]


class Alive:
    """A GPU, until it is lost."""

    def __init__(self, index: int, uuid: str) -> None:
        self.index, self.uuid, self.name, self.problem = index, uuid, "", ""

    def sample(self, now: float) -> DeviceSample:
        if self.problem:
            raise SourceError(self.problem)
        return DeviceSample(index=self.index, uuid=self.uuid, name=self.name)

    def alerts(self, now: float) -> list[Alert]:
        return []


def seen(guarded: Guarded, now: float) -> list[tuple[int, str, str]]:
    told = [one for one in guarded.sample(now) if isinstance(one, DeviceSample)]
    return [(one.index, one.uuid, one.problem) for one in told]


def test_a_gpu_that_comes_back_at_another_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its handle is good for nothing any more, though others are."""
    monkeypatch.setattr(sampler, "REOPEN_S", 5.0)
    lost = Alive(0, "GPU-a")
    page = Handover()
    guarded = Guarded(Source([lost, Alive(1, "GPU-b")], [Alive(0, "GPU-b"), Alive(1, "GPU-a")]), page)
    assert seen(guarded, 1.0) == [(0, "GPU-a", ""), (1, "GPU-b", "")]
    lost.problem = "GPU is lost"
    assert seen(guarded, 2.0) == [(0, "GPU-a", "GPU is lost"), (1, "GPU-b", "")]
    for now in (3.0, 4.5, 6.5):
        assert (1, "GPU-b", "") in seen(guarded, now)
    assert seen(guarded, 7.0) == [(0, "GPU-b", ""), (1, "GPU-a", "")]
    page.close()
