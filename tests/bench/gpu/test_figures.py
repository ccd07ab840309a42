"""What the checks work out of runs and counters, by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench.gpu.box import Box, apart
from tests.bench.gpu.devices import compare
from tests.bench.gpu.energy import at
from tests.bench.gpu.findings import Findings
from tests.bench.gpu.smi import MIB, parse
from tests.bench.gpu.speed import account, epoch_seconds, mfu
from tests.bench.gpu.test_runner import SMI
from tests.kit.reported import evaluation_event, step_event
from tuiapp.trainers.contract.events import AnyEvent, Phase, PhaseName, RankStarted, RunStarted


def phase(name: PhaseName, mono: float, rank: int = 0) -> Phase:
    return Phase(rank=rank, phase=name, mono=mono)


RUN: list[AnyEvent] = [
    phase("preparing", 1.0),
    phase("training", 10.0),
    phase("training", 10.5, rank=1),
    # Two entries of two steps each, and another rank's.
    step_event(0, 1, [2.0, 1.5], seconds=1.0, counts=[2, 2]),
    step_event(1, 1, [2.0, 1.5], seconds=9.0, counts=[2, 2]),
    phase("evaluating", 14.0),
    evaluation_event(4, 1.0, 0.9, seconds=0.5),
    phase("checkpointing", 14.5),
    phase("training", 14.75),
    step_event(0, 5, [1.0, 0.5], seconds=2.0),
    phase("evaluating", 18.75),
    evaluation_event(6, 1.0, 0.9, seconds=0.25),
    phase("checkpointing", 19.0),
    phase("done", 20.0),
]


def test_steps_evaluations_and_checkpoints_are_accounted_for() -> None:
    assert account(RUN) == (10.0, 4.0 + 0.5 + 0.25 + 4.0 + 0.25 + 1.0)
    assert epoch_seconds(RUN) == [4.0, 4.0]


@pytest.mark.parametrize(
    ("name", "seconds", "times"),
    [("NVIDIA H100 80GB HBM3", 2.0, 1.0), ("NVIDIA H100 80GB HBM3", 0.5, 4.0), ("A GPU of tomorrow", 2.0, None)],
    ids=["true", "steps not waited for", "unknown"],
)
def test_mfu_as_shown_beside_the_clock(name: str, seconds: float, times: float | None) -> None:
    config: dict[str, object] = {"precision": "bfloat16", "global_batch_size": 100}
    started = RunStarted(
        run_id="", host="", pid=1, config=config, world_size=1, steps_per_epoch=4, total_steps=6, flops_per_example=1e9
    )
    device = RankStarted(rank=0, pid=1, device="cuda:0", device_name=name)
    phases = [event for event in RUN if isinstance(event, Phase)]
    steps = step_event(0, 5, [1.0, 0.5], examples=100, seconds=seconds)
    found = mfu([started, device, *phases, steps])
    if times is None:
        assert found is None
    else:
        by_the_clock = 200 / 4.0 * 1e9 / 989.5e12
        assert found == pytest.approx((times * by_the_clock, by_the_clock))


def test_a_step_that_is_not_told_of_is_missed() -> None:
    wall, accounted = account([event for event in RUN if event is not RUN[9]])
    assert wall - accounted == 4.0


def test_curves_are_apart_by_their_largest_difference() -> None:
    assert apart([1.0, 2.0, 9.0], [1.0, 2.5, 0.0], 2) == 0.5
    assert apart([1.0], [1.0, 2.0], 2) is None


def test_the_counter_between_two_readings() -> None:
    counter = [(0.0, 100.0), (1.0, 200.0), (3.0, 600.0)]
    assert [at(counter, moment) for moment in (0.0, 0.5, 1.0, 2.0, 3.0)] == [100.0, 150.0, 200.0, 400.0, 600.0]


SHOWN = {
    "index": 0, "name": "NVIDIA H100 80GB HBM3", "memory_total_bytes": 81559 * MIB, "memory_used_bytes": 40841 * MIB,
    "power_limit_w": 700.0, "temperature_c": 62, "power_w": 640.0, "utilization_percent": 97,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "bad"),
    [
        ({}, []),
        # Newer figures leave out what the driver keeps for itself.
        ({"memory_used_bytes": 40213 * MIB}, []),
        ({"memory_used_bytes": 39000 * MIB}, ["GPU 0: memory in use, MiB"]),
        ({"memory_used_bytes": 42000 * MIB}, ["GPU 0: memory in use, MiB"]),
        ({"index": 1}, ["GPU 0: index, name"]),
        ({"power_limit_w": 350.0, "power_w": None}, ["GPU 0: power limit, W", "GPU 0: power, W"]),
    ],
)
def test_a_gpu_is_held_against_nvidia_smi(change: dict[str, Any], bad: list[str], tmp_path: Path) -> None:
    found = Findings(tmp_path / "findings.jsonl")
    row = parse(SMI)[0]
    detail = f"{row['name']}, 79.6 GiB, {row['uuid']}, driver {row['driver_version']}"
    compare(Box(tmp_path, "devices", (row["uuid"],), found), row, SHOWN | change, detail)
    findings = [json.loads(line) for line in found.path.read_text().splitlines()]
    assert len(findings) == 8
    assert [finding["what"] for finding in findings if not finding["ok"]] == bad
