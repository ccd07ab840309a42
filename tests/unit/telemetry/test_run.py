"""Real runs whose samplers look at scripted GPUs: what stands in the journal, alerts of Xid errors among it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.kit.fake_nvml import FakeNvml, gpu, needs_compiler, several
from tests.kit.harness import MLP, Watched, launched
from tests.unit.telemetry.conftest import Sampling
from tuiapp.trainers.contract.events import Alert, DeviceSample, HostSample, RankSample, TelemetrySource
from tuiapp.trainers.telemetry.nvidia import QUIET_S, XidEvents

pytestmark = needs_compiler


@pytest.fixture
def run(
    request: pytest.FixtureRequest, nvml: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Watched]:
    """Trains on the CPU; its sampler has two GPUs, or what the test's script says."""
    nvml.say(getattr(request, "param", several(2)))
    nvml.install(monkeypatch)
    monkeypatch.setenv("TUIAPP_TELEMETRY_GPUS", "all")
    monkeypatch.setenv("TUIAPP_TELEMETRY_S", "0.25")
    monkeypatch.setenv("TUIAPP_TELEMETRY_HOST_PIDS", "1")
    with launched(MLP, tmp_path / "runs") as watched:
        yield watched


@pytest.mark.nightly
def test_what_is_sampled_is_what_the_script_says(run: Watched, nvml: FakeNvml) -> None:
    run.at_step(20)
    mine = [gpu(f"GPU-000{rank}", f"Fake {rank}", f"process {run.pid(rank)} {(rank + 1) << 20}") for rank in range(2)]
    nvml.say(mine)
    for rank in range(2):
        sample = run.wait(DeviceSample, lambda one, rank=rank: one.index == rank and bool(one.processes))  # type: ignore[misc]
        [process] = sample.processes or []
        assert (process.pid, process.rank, process.memory_bytes) == (run.pid(rank), rank, (rank + 1) << 20)
        assert (sample.utilization_percent, sample.power_w) == (42, 310.5)
        told = run.wait(RankSample, lambda one, rank=rank: one.rank == rank and bool(one.cpu_percent))  # type: ignore[misc]
        assert told.cpu_percent is not None
        assert 0 < told.cpu_percent < 10_000
        assert 0 < (told.shared_bytes or 0) < told.rss_bytes
        assert told.threads >= 1
    host = run.wait(HostSample)
    assert len(host.cpu_percent_per_core or []) >= host.cpu_cores
    assert 0 < host.disk_free_bytes <= (host.disk_total_bytes or 0)
    assert 0 < host.memory_used_bytes < host.memory_total_bytes
    energies = [one.energy_j for one in run.of(DeviceSample) if one.index == 0]
    assert energies == sorted(energies, key=lambda joules: joules or 0)
    assert energies[0] == 0


@pytest.mark.nightly
def test_training_goes_on_while_the_driver_crashes(run: Watched, nvml: FakeNvml) -> None:
    run.wait(DeviceSample)
    nvml.say(several(1) + gpu("GPU-0001", "Fake 1", "fault nvmlDeviceGetPowerUsage crash"))
    began = time.monotonic()
    problem = run.wait(TelemetrySource, lambda one: bool(one.problem))
    assert (problem.source, "SIGSEGV" in problem.problem) == ("NVML", True)
    run.wait(TelemetrySource, lambda one: "disabled for 10 min" in one.problem)
    assert [alert.kind for alert in run.of(Alert) if alert.kind.startswith("telemetry")] == ["telemetry-NVML"]
    run.at_step(1)
    last = max(run.steps_of(0))
    run.at_step(last + 50)
    after = run.of(TelemetrySource)[-1].mono
    run.wait(HostSample, lambda one: one.mono > after)
    run.wait(RankSample, lambda one: one.mono > after)
    steps = max(run.steps_of(0)) - last
    told_s, alone_s = problem.mono - began, after - began
    print(f"line 30: told after {told_s:.2f} s, left alone after {alone_s:.1f} s, {steps:,} steps since")


@pytest.mark.nightly
@pytest.mark.parametrize("run", ["fault nvmlInitWithFlags return 9\n"], indirect=True)
def test_training_goes_on_without_a_driver(run: Watched, nvml: FakeNvml) -> None:
    failed = run.wait(TelemetrySource)
    assert (failed.source, failed.problem) == ("NVML", "Driver Not Loaded")
    alert = run.wait(Alert, lambda one: one.kind == "telemetry-NVML")
    assert alert.text == "no readings from NVML: Driver Not Loaded; training continues"
    nvml.say(several(2))
    run.at_step(50)
    run.wait(RankSample)
    back = run.wait(DeviceSample)
    said = failed.mono - run.started.mono
    print(f"line 29: said {said:.2f} s after the start, 50 steps made, sampled {back.mono - failed.mono:.1f} s later")
    assert run.wait(Alert, lambda one: one.kind == "telemetry-NVML" and one.ended).text == "NVML works again"


Start = Callable[..., Sampling]


def test_an_xid_is_an_alert_on_its_gpu(nvml: FakeNvml, sample: Start) -> None:
    # Those from before the run are not its own.
    nvml.say(several(1) + gpu("GPU-0001", "Fake 1", xid="13"))
    sampling = sample()
    sampling.wait(DeviceSample, lambda one: one.index == 1)
    nvml.say(several(1) + gpu("GPU-0001", "Fake 1", xid="13 48 45 7"))
    alerts = [sampling.wait(Alert) for _ in range(3)]
    assert {(one.kind, one.device) for one in alerts} == {("xid", "GPU-0001")}
    assert [one.severity for one in alerts] == ["error", "info", "warning"]
    assert [one.text for one in alerts] == [
        "GPU 1 reported Xid 48: a memory error could not be corrected (ECC): reset the GPU",
        "GPU 1 reported Xid 45: the driver cleaned up after a program that was killed or had failed before",
        "GPU 1 reported Xid 7: its meaning is in https://docs.nvidia.com/deploy/xid-errors/",
    ]


def test_an_xid_of_a_gpu_that_is_lost_by_it_is_reported(nvml: FakeNvml, sample: Start) -> None:
    sampling = sample()
    sampling.wait(DeviceSample)
    lost = "fault nvmlDeviceGetUtilizationRates return 15"
    nvml.say(gpu("GPU-0000", "Fake 0", lost, xid="79"))
    assert sampling.wait(Alert).text.startswith("GPU 0 reported Xid 79: it has fallen off the PCIe bus")
    assert sampling.wait(DeviceSample, lambda one: one.index == 0).problem == "GPU is lost"


@pytest.mark.parametrize("function", ["nvmlEventSetCreate", "nvmlDeviceRegisterEvents"])
def test_where_xids_cannot_be_had_nothing_is_said(nvml: FakeNvml, sample: Start, function: str) -> None:
    nvml.say(f"fault {function} return 3\n" + several(1))
    sampling = sample()
    sampling.wait(DeviceSample)
    nvml.say(f"fault {function} return 3\n" + several(1, xid="79", temperature=77))
    told = sampling.wait(DeviceSample, lambda one: one.temperature_c == 77)
    assert (told.problem, [one for one in sampling.events if isinstance(one, Alert)]) == ("", [])


class Events:
    """pynvml's part of it: a list of Xids for each time that all are read."""

    nvmlEventTypeXidCriticalError, NVML_ERROR_UNKNOWN = 8, 999

    class NVMLError(Exception):
        value = 10

    def __init__(self, *xids: list[int]) -> None:
        self._xids = [code for some in xids for code in (*some, None)]

    def nvmlEventSetCreate(self) -> object:
        return object()

    def nvmlDeviceRegisterEvents(self, *_: object) -> None: ...

    def nvmlEventSetWait_v2(self, _: object, timeout_ms: int) -> SimpleNamespace:
        assert timeout_ms == 0
        if (code := self._xids.pop(0)) is None:
            raise self.NVMLError
        return SimpleNamespace(eventData=code, gpuInstanceId=3)


def test_a_repeated_xid_is_reported_once_in_a_while() -> None:
    events = XidEvents(Events([31, 31, 13], [31], [], [31]), None, 0, "GPU-a")
    assert [one.text.split(":")[0] for one in events.read(1000.0)] == [
        "GPU 0 reported Xid 31 of its GPU instance 3", "GPU 0 reported Xid 13 of its GPU instance 3",
    ]  # fmt: skip
    assert events.read(1001.0) == events.read(1002.0) == []
    assert [one.severity for one in events.read(1000.0 + QUIET_S)] == ["warning"]
