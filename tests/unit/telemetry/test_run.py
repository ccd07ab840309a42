"""A real run whose sampler looks at scripted GPUs: what stands in the journal, held against the script."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.fake_nvml import FakeNvml, gpu, needs_compiler, several
from tests.kit.harness import MLP, Watched, launched
from tuiapp.trainers.contract.events import Alert, DeviceSample, HostSample, RankSample, TelemetrySource

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
