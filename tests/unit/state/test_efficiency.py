"""What is derived of a run's events, against figures worked out by hand."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from tests.kit import histories as h
from tests.kit.reported import step_event, with_values
from tuiapp.trainers.contract.events import AnyEvent, DeviceSample, RankStarted
from tuiapp.trainers.state.efficiency import EfficiencyMeter, find_peak

FLOPS = 15_396_864.0


def second(number: int, *, busy: float | None = 75.0, watts: float | None = 500.0, gpus: int = 2) -> list[AnyEvent]:
    """Ten steps of 0.05 s on 24 examples for each GPU's rank, and a sample of each GPU."""
    events: list[AnyEvent] = []
    for rank in range(gpus):
        events.append(h.steps(rank, number * 10 + 1, number * 10 + 10, float(number)))
        energy = None if watts is None else watts * number
        sample = h.device_sample(rank, float(number))
        events.append(msgspec.structs.replace(sample, utilization_percent=busy, energy_j=energy))
    return events


def meter(events: list[AnyEvent]) -> EfficiencyMeter:
    made = EfficiencyMeter()
    for event in events:
        made.add(event)
    return made


def test_a_run_on_two_gpus() -> None:
    events = [*h.beginning(2, gpus=True), *(event for number in range(11) for event in second(number))]
    figures = meter(events).efficiency(whole=True)
    assert figures.gpu_idle_share == pytest.approx(0.25)
    assert figures.power_w == pytest.approx(1000)
    assert figures.examples_per_joule == pytest.approx(11 * 2 * 10 * 24 / (2 * 500 * 10))
    assert figures.flops_per_second == pytest.approx(FLOPS * 2 * 24 / 0.05)
    assert figures.mfu == pytest.approx(FLOPS * 2 * 24 / 0.05 / (2 * 67e12))


def test_the_last_seconds_alone() -> None:
    events = [*h.beginning(2, gpus=True)]
    for number in range(60):
        events += second(number, busy=100.0 if number < 20 else 50.0)
    figures = meter(events).efficiency()
    assert figures.gpu_idle_share == pytest.approx(0.5)
    assert figures.examples_per_joule == pytest.approx(2 * 240 / 1000, rel=0.1)
    whole = meter(events).efficiency(whole=True)
    assert whole.gpu_idle_share == pytest.approx(0.5 * 40 / 59, rel=0.03)


def test_energy_goes_on_over_a_gap_and_utilization_does_not() -> None:
    events = [*h.beginning(1, gpus=True), *second(0, gpus=1), *second(1, gpus=1), *second(101, busy=0.0, gpus=1)]
    figures = meter(events).efficiency(whole=True)
    assert figures.power_w == pytest.approx(500)
    assert figures.gpu_idle_share == pytest.approx(0.25)


def test_energy_that_no_sampler_counted_is_not_spread_over_its_time() -> None:
    events = [*h.beginning(1, gpus=True), *second(0, gpus=1), *second(10, gpus=1)]
    # The sampler's library was disabled for 10 min; another sampler counts on from 5,000 J.
    for number in range(600, 611):
        sample = msgspec.structs.replace(h.device_sample(0, float(number)), energy_j=500.0 * (number - 590))
        events.append(sample)
    assert meter(events).efficiency(whole=True).power_w == pytest.approx(500)


def test_a_second_attempt_adds_to_the_first() -> None:
    first = [*h.beginning(1, gpus=True), *second(0, gpus=1), *second(10, gpus=1)]
    again = [h.started(1, gpus=True, attempt=2), h.rank_started(0, gpus=True), *second(0, gpus=1), *second(5, gpus=1)]
    made = meter(first + again).efficiency(whole=True)
    assert made.examples_per_joule == pytest.approx(4 * 240 / (500 * 15))


def test_what_is_not_known_is_none() -> None:
    nothing = meter([]).efficiency(whole=True)
    assert set(dataclasses.asdict(nothing).values()) == {None}
    cpu = meter(h.completed()).efficiency(whole=True)
    assert cpu.flops_per_second is not None
    assert (cpu.mfu, cpu.examples_per_joule, cpu.gpu_idle_share, cpu.power_w) == (None, None, None, None)
    silent = [event for number in range(5) for event in second(number, busy=None, watts=None)]
    told = meter([*h.beginning(2, gpus=True), *silent]).efficiency(whole=True)
    assert (told.gpu_idle_share, told.examples_per_joule, told.power_w) == (None, None, None)
    assert told.mfu is not None


def test_steps_that_were_joined_count_as_what_they_stand_for() -> None:
    joined = step_event(0, 1, [1.0], seconds=0.1, examples=240, counts=[10])
    figures = meter([h.started(1), joined]).efficiency(whole=True)
    assert figures.flops_per_second == pytest.approx(FLOPS * 240)


def test_a_gpu_that_is_not_known_has_no_peak() -> None:
    other = RankStarted(rank=1, pid=1, device="cuda:1", device_name="Fake A")
    events = [h.started(2, gpus=True), h.rank_started(0, gpus=True), other, *second(0), *second(1)]
    assert meter(events).efficiency(whole=True).mfu is None


@pytest.mark.parametrize(
    ("name", "bfloat16"),
    [
        ("NVIDIA H100 80GB HBM3", 989.5),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H100 NVL", 835.5),
        ("NVIDIA H200", 989.5),
        ("NVIDIA B200", 2250),
        ("NVIDIA A100-SXM4-40GB", 312),
        ("NVIDIA A10", 125),
        ("NVIDIA A10G", 70),
        ("NVIDIA L40", 181),
        ("NVIDIA RTX 6000 Ada Generation", 364.2),
        ("NVIDIA L4", 121),
        ("NVIDIA L40S", 362),
        ("NVIDIA GeForce RTX 3090", 71),
        ("NVIDIA GeForce RTX 4090", 165.2),
        ("NVIDIA GeForce RTX 5090", 209.5),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 503.8),
        ("Tesla T4", None),
        ("Tesla V100-SXM2-16GB", None),
    ],
)
def test_peaks(name: str, bfloat16: float | None) -> None:
    peak = find_peak(name)
    assert peak is not None
    assert peak.at("bfloat16") == (None if bfloat16 is None else bfloat16 * 1e12)
    assert 5e12 < peak.float32 <= (peak.tf32 or 1e15)
    assert peak.source


def test_tensor_cores_that_know_float16_alone() -> None:
    for name, float16 in (("Tesla V100-SXM2-16GB", 125), ("Tesla T4", 65), ("NVIDIA H100 80GB HBM3", 989.5)):
        peak = find_peak(name)
        assert peak is not None
        assert peak.at("float16") == float16 * 1e12


@pytest.mark.parametrize(
    "name",
    [
        "",
        "cpu",
        "NVIDIA",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA A1000",
        "Fake A",
    ],
)
def test_no_peak_is_made_up(name: str) -> None:
    assert find_peak(name) is None


def test_a_lost_gpu_is_no_busy_one() -> None:
    lost = DeviceSample(index=0, uuid="GPU-0000", name="NVIDIA H200", problem="GPU is lost", **h.at(2.0))
    events = [*h.beginning(1, gpus=True), *second(0, gpus=1), *second(1, gpus=1), lost]
    assert meter(events).efficiency(whole=True).gpu_idle_share == pytest.approx(0.25)


def test_data_wait_is_a_share_of_the_steps_that_tell_it() -> None:
    told = [with_values(h.steps(0, 1, 10, 3.0), data_wait=[0.01] * 10), h.steps(1, 1, 10, 3.0)]
    assert meter([*h.beginning(2), *told]).efficiency(whole=True).data_wait_share == pytest.approx(0.1 / 0.5)
    assert meter([*h.beginning(2), *told[1:]]).efficiency(whole=True).data_wait_share is None
