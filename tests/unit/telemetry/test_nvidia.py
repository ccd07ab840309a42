"""What a sampler tells of GPUs, held against the script of the library behind the real pynvml."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.kit.fake_nvml import GIB, FakeNvml, gpu, needs_compiler, several
from tests.unit.telemetry.conftest import Sampling
from tuiapp.trainers.config.machine import GpuProcess
from tuiapp.trainers.contract.events import DeviceSample, HostSample, MigInstance, TelemetrySource

pytestmark = needs_compiler

Start = Callable[..., Sampling]


@pytest.fixture
def sleeper() -> Iterator[int]:
    """A process of ours that does nothing."""
    process = subprocess.Popen(["sleep", "600"])
    yield process.pid
    process.kill()
    process.wait()


def near(rate: float) -> Any:
    """A rate by the library's clock, as it is seen by the sampler's."""
    return pytest.approx(rate, rel=0.3)


def test_all_that_a_gpu_tells(sample: Start) -> None:
    sampling = sample()
    # Rates take two samples, neither held up by a busy machine between its moment and the call.
    told = sampling.wait(DeviceSample, lambda one: one.index == 1 and one.pcie_rx_bytes_per_s == near(2e6))
    assert (told.uuid, told.name, told.problem) == ("GPU-0001", "Fake 1", "")
    assert (told.utilization_percent, told.memory_utilization_percent) == (42, 7)
    assert (told.memory_used_bytes, told.memory_total_bytes) == (5 * GIB, 80 * GIB)
    assert (told.power_w, told.power_limit_w) == (310.5, 700)
    assert (told.temperature_c, told.temperature_limit_c) == (61, 87)
    assert (told.sm_clock_mhz, told.sm_clock_limit_mhz, told.memory_clock_mhz) == (1755, 1980, 2619)
    assert (told.throttle_reasons, told.performance_state, told.fan_percent) == ([], 0, 30)
    assert (told.ecc_corrected, told.ecc_uncorrected, told.processes, told.mig) == (0, 0, [], None)
    # All counters are read in one call.
    rates = told.pcie_tx_bytes_per_s, told.nvlink_rx_bytes_per_s, told.nvlink_tx_bytes_per_s
    assert rates == (near(1e6), near(4000 * 1024), near(3000 * 1024))
    assert sampling.wait(HostSample).cpu_cores > 0


@pytest.mark.nightly
def test_values_that_move(nvml: FakeNvml, sample: Start) -> None:
    sampling = sample()
    sampling.wait(DeviceSample, lambda one: one.utilization_percent == 42)
    nvml.say(several(2, utilization=97, power_mw=650_000, reasons=0x4 | 0x20, performance_state=2, temperature=88))
    told = sampling.wait(DeviceSample, lambda one: one.utilization_percent == 97)
    assert (told.power_w, told.temperature_c, told.performance_state) == (650, 88, 2)
    assert told.throttle_reasons == ["power limit", "hot"]
    nvml.say(several(2, fan=80, ecc_corrected=3, ecc_uncorrected=1, reasons=1))
    told = sampling.wait(DeviceSample, lambda one: one.fan_percent == 80)
    assert (told.ecc_corrected, told.ecc_uncorrected) == (3, 1)
    # An idle GPU's low clocks are no throttling.
    assert told.throttle_reasons == []


def test_what_a_gpu_does_not_tell_is_null(nvml: FakeNvml, sample: Start) -> None:
    nvml.say("gpu GPU-mute Mute\nfault nvmlDeviceGetMemoryInfo return 4\n")
    told = sample().wait(DeviceSample)
    # What every sample has, and what goes without saying.
    assert told == DeviceSample(index=0, uuid="GPU-mute", name="Mute", time=told.time, mono=told.mono)
    nvml.say(gpu("GPU-some", "Some", nvlink_rx_kib=None, nvlink_tx_kib=None, fan=None, ecc_corrected=None))
    told = sample().wait(DeviceSample, lambda one: one.pcie_rx_bytes_per_s is not None)
    assert (told.nvlink_rx_bytes_per_s, told.fan_percent, told.ecc_corrected) == (None, None, None)
    assert (told.ecc_uncorrected, told.temperature_c) == (0, 61)


def test_a_gpu_without_memory_of_its_own_has_the_systems(nvml: FakeNvml, sample: Start) -> None:
    """As GB10 and Jetson."""
    nvml.say(gpu("GPU-gb10", "NVIDIA GB10", memory_total=None, memory_used=None))
    sampling = sample()
    told, host = sampling.wait(DeviceSample), sampling.wait(HostSample)
    assert told.has_system_memory
    assert told.memory_total_bytes == host.memory_total_bytes
    assert told.memory_used_bytes == pytest.approx(host.memory_used_bytes, abs=GIB)
    # Its handle is good for nothing any more: the system's memory is no answer of its own.
    nvml.say("gpu GPU-gb10 NVIDIA GB10\n")
    assert sampling.wait(DeviceSample, lambda one: bool(one.problem)).problem == "it no longer answers"


def test_older_drivers(nvml: FakeNvml, sample: Start) -> None:
    """Their names for throttle reasons; no counters of PCIe, but a measurement; no count of energy, but power."""
    old = gpu(
        "GPU-old",
        "Old",
        reasons=None,
        old_reasons=0x8,
        pcie_rx_bytes=None,
        pcie_tx_bytes=None,
        pcie_rx_kb=5,
        pcie_tx_kb=6,
        energy_mj=None,
    )
    nvml.say(old)
    told = sample().wait(DeviceSample, lambda one: bool(one.energy_j))
    assert told.throttle_reasons == ["hardware slowdown"]
    assert (told.pcie_rx_bytes_per_s, told.pcie_tx_bytes_per_s) == (5000, 6000)
    assert told.energy_j is not None
    assert 0 < told.energy_j < 310.5 * 60


def test_processes_and_their_ranks(nvml: FakeNvml, sample: Start, sleeper: int) -> None:
    lines = [f"process {os.getpid()} {3 * GIB}", f"process {sleeper} -", "process 999999999 77"]
    nvml.say(gpu("GPU-a", "A", *lines))
    # The sleeper was started by this process, which stands for rank 3; so it is rank 3's as well.
    told = sample(ranks={3: os.getpid()}).wait(DeviceSample)
    mine, child, gone = told.processes or []
    user = mine.user
    assert user
    assert mine == GpuProcess(pid=os.getpid(), rank=3, user=user, name=mine.name or "-", memory_bytes=3 * GIB)
    assert child == GpuProcess(pid=sleeper, rank=3, user=user, name="sleep")
    assert gone == GpuProcess(memory_bytes=77)
    foreign = sample(ranks={0: sleeper}).wait(DeviceSample)
    assert [one.rank for one in foreign.processes or []] == [None, 0, None]


def test_host_pids_in_a_container_are_nobodys(
    nvml: FakeNvml, sample: Start, sleeper: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's number is another process's here: it is not taken for that."""
    nvml.say(gpu("GPU-a", "A", f"process {sleeper} 123"))
    monkeypatch.setenv("TUIAPP_TELEMETRY_HOST_PIDS", "0")
    assert sample(ranks={0: sleeper}).wait(DeviceSample).processes == [GpuProcess(memory_bytes=123)]


def test_mig(nvml: FakeNvml, sample: Start, sleeper: int) -> None:
    mine = os.getpid()
    parts = [
        "mig MIG-b1 1g.10gb 1000 10",
        "mig MIG-b2 2g.20gb 2000 20",
        f"process {sleeper} 5 1",
        f"process {mine} 7 0",
    ]
    nvml.say(several(1) + gpu("GPU-parted", "NVIDIA A100", *parts, mig_mode=1, utilization=None))
    told = sample(gpus="MIG-b2", ranks={1: sleeper}).wait(DeviceSample)
    assert (told.index, told.uuid) == (1, "GPU-parted")
    assert (told.utilization_percent, told.memory_utilization_percent) == (None, None)
    first, second = told.mig or []
    user = (second.processes or [])[0].user
    assert user
    ours = GpuProcess(pid=sleeper, rank=1, user=user, name="sleep", memory_bytes=5)
    assert second == MigInstance(
        uuid="MIG-b2", name="2g.20gb", memory_total_bytes=2000, memory_used_bytes=20, processes=[ours]
    )
    assert (first.uuid, first.name, first.memory_total_bytes) == ("MIG-b1", "1g.10gb", 1000)
    assert [(one.pid, one.rank, one.memory_bytes) for one in first.processes or []] == [(mine, None, 7)]
    # The driver names both for the whole GPU, too.
    assert told.processes == []


def test_only_the_runs_gpus(nvml: FakeNvml, sample: Start) -> None:
    nvml.say(several(4))
    sampling = sample(gpus="GPU-0003,GPU-0001")
    for _ in range(4):
        sampling.wait(DeviceSample)
    assert {one.uuid for one in sampling.events if isinstance(one, DeviceSample)} == {"GPU-0001", "GPU-0003"}


@pytest.mark.nightly
def test_a_driver_that_comes_later(nvml: FakeNvml, sample: Start) -> None:
    nvml.say("fault nvmlInitWithFlags return 9\n")
    sampling = sample()
    assert sampling.wait(TelemetrySource).problem == "Driver Not Loaded"
    # The host is sampled meanwhile.
    sampling.wait(HostSample)
    nvml.say(several(1))
    assert sampling.wait(TelemetrySource) == TelemetrySource(
        source="NVML", time=sampling.events[-1].time, mono=sampling.events[-1].mono
    )
    sampling.wait(DeviceSample)


def test_a_gpu_of_the_run_that_is_not_there(nvml: FakeNvml, sample: Start) -> None:
    sampling = sample(gpus="GPU-elsewhere,GPU-0001")
    told = sampling.wait(DeviceSample, lambda one: bool(one.problem))
    assert (told.uuid, told.problem) == ("GPU-elsewhere", "it is missing")
    assert sampling.wait(DeviceSample, lambda one: not one.problem).uuid == "GPU-0001"
    # A lost one does not tell its UUID: there is but one that it can be.
    nvml.say(gpu("GPU-0000", "Fake 0", "fault * return 15") + gpu("GPU-0001", "Fake 1"))
    sampling = sample(gpus="GPU-0001,GPU-0000")
    told = sampling.wait(DeviceSample, lambda one: bool(one.problem))
    assert (told.index, told.uuid, told.problem) == (0, "GPU-0000", "GPU is lost")


def test_indices_that_are_not_there(sample: Start) -> None:
    assert sample(gpus="7").wait(TelemetrySource).problem == "it finds none of the run's GPUs"


def test_energy_goes_on_where_an_earlier_sampler_left_it(nvml: FakeNvml, sample: Start) -> None:
    nvml.say(several(2, energy_mj=7_000_000))
    first = sample()
    assert first.wait(DeviceSample, lambda one: one.index == 0).energy_j == 0
    nvml.say(several(2, energy_mj=7_310_500))
    first.wait(DeviceSample, lambda one: one.index == 0 and one.energy_j == 310.5)
    first.end()
    second = sample(energy={"GPU-0000": 310.5})
    assert second.wait(DeviceSample, lambda one: one.index == 0).energy_j == 310.5
    nvml.say(several(2, energy_mj=7_900_000))
    second.wait(DeviceSample, lambda one: one.index == 0 and one.energy_j == 900)
