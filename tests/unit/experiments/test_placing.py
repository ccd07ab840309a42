"""Which of the runs that wait start: first come, first served, and never on a device that is in use."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuiapp.trainers.config.machine import Gpu
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import Entry, Waiting
from tuiapp.trainers.experiments.placing import Facts, HeldDevices, decide, forecast

UUIDS = [f"GPU-{number}" for number in range(8)]


def entry(name: str, devices: int = 1, **fields: Any) -> Entry:
    waiting = Waiting(**{"order": 0.0, "platform": "cuda", "devices": devices, **fields})
    return Entry(RunDir(Path(name)), waiting)


def on_cpu(name: str, **fields: Any) -> Entry:
    return entry(name, platform="cpu", **fields)


def facts(gpus: int = 0, live: list[HeldDevices] | None = None, busy: set[str] | None = None, slots: int = 2) -> Facts:
    present = [Gpu(index=n, uuid=UUIDS[n], name="Fake") for n in range(gpus)]
    return Facts(100.0, present, busy or set(), live or [], slots)


def started(queue: list[Entry], now: Facts) -> dict[str, tuple[str, ...]]:
    return {start.entry.run.run_id: start.gpus for start in decide(queue, now)[0]}


def test_small_runs_fill_the_gpus_and_the_next_waits() -> None:
    queue = [entry(name) for name in "abcdef"]
    found, reasons = decide(queue, facts(4))
    assert [(start.entry.run.run_id, *start.gpus) for start in found] == [*zip("abcd", UUIDS, strict=False)]
    assert reasons == dict.fromkeys("ef", "waits for 1 GPU: 0 free of 4")


def test_no_device_that_anybody_has() -> None:
    now = facts(4, [HeldDevices("ours", (UUIDS[1],))], busy={UUIDS[0], UUIDS[3]})
    assert started([entry("a"), entry("b")], now) == {"a": (UUIDS[2],)}


def test_a_large_run_is_not_starved_by_small_ones() -> None:
    now = facts(4, [HeldDevices("ours", (UUIDS[0],))])
    large, small = entry("large", 4), entry("small")
    assert started([large, small], now) == {}
    assert started([small, large], now) == {"small": (UUIDS[1],)}
    # What the large one cannot use the small one may have.
    large = entry("large", device_ids=(UUIDS[0], UUIDS[1]))
    assert started([large, small], now) == {"small": (UUIDS[2],)}


def test_a_run_gets_what_its_session_could_see() -> None:
    hidden = entry("a", environment={"CUDA_VISIBLE_DEVICES": "2,3"})
    assert started([hidden, entry("b")], facts(4)) == {"a": (UUIDS[2],), "b": (UUIDS[0],)}
    assert decide([hidden], facts(2))[1] == {"a": "its GPUs are not on this machine now"}


def test_slots_of_the_cpu() -> None:
    queue = [on_cpu("a"), on_cpu("b"), entry("c")]
    assert started(queue, facts(1, [HeldDevices("ours")])) == {"a": (), "c": (UUIDS[0],)}
    assert decide(queue, facts(1, [HeldDevices("ours")]))[1] == {"b": "waits for the CPU, which takes 2 runs at a time"}


def test_held_and_later_runs_do_not_stop_the_others() -> None:
    queue = [on_cpu("a", held=True), on_cpu("b", not_before=105.0), on_cpu("c")]
    found, reasons = decide(queue, facts())
    assert [start.entry.run.run_id for start in found] == ["c"]
    assert reasons == {"a": "held", "b": "tried again in 5 s"}


def test_an_exclusive_run_is_alone() -> None:
    alone, other = on_cpu("alone", exclusive=True), on_cpu("other")
    assert started([alone, other], facts()) == {"alone": ()}
    assert started([other, alone, on_cpu("third")], facts()) == {"other": ()}
    assert started([other], facts(live=[HeldDevices("alone", exclusive=True)])) == {}
    assert started([alone], facts(live=[HeldDevices("job", on_slurm=True)])) == {"alone": ()}


def test_no_more_jobs_than_wanted_are_with_slurm() -> None:
    queue = [on_cpu(name, on_slurm=True, parallel=2) for name in "abc"]
    assert started(queue, facts(live=[HeldDevices("job", on_slurm=True)])) == {"a": ()}
    assert started([on_cpu("a", on_slurm=True)], facts(slots=0)) == {"a": ()}


@given(
    st.lists(st.tuples(st.integers(0, 8), st.booleans(), st.booleans()), max_size=12),
    st.sets(st.sampled_from(UUIDS)),
    st.lists(st.sampled_from(UUIDS), unique=True),
)
def test_whatever_waits_no_device_is_given_twice(
    wanted: list[tuple[int, bool, bool]], busy: set[str], ours: list[str]
) -> None:
    queue = [
        entry(f"run{n}", devices, platform="cuda" if gpu else "cpu", exclusive=alone)
        for n, (devices, gpu, alone) in enumerate(wanted)
    ]
    now = facts(8, [HeldDevices("ours", tuple(ours))] if ours else [], busy)
    starts, reasons = decide(queue, now)
    given_away = [uuid for start in starts for uuid in start.gpus]
    assert len(given_away) == len({*given_away})
    assert not {*given_away} & (busy | {*ours})
    assert {start.entry.run.run_id for start in starts} ^ reasons.keys() == {one.run.run_id for one in queue}
    assert all(len(one.gpus) >= (one.entry.waiting.devices or 1) for one in starts if one.gpus)
    # Whatever is first and would fit starts.
    if queue and not ours and queue[0].waiting.platform == "cuda" and 8 - len(busy) >= (queue[0].waiting.devices or 1):
        assert starts[0].entry is queue[0]


@pytest.mark.parametrize(
    ("ends", "lasts", "expected"),
    [
        (160.0, 50.0, {"a": 100.0, "b": 150.0}),
        (math.inf, 50.0, {"a": 100.0, "b": 150.0}),
        (120.0, None, {"a": 100.0, "b": 120.0}),
    ],
)
def test_when_the_next_are_expected_to_start(ends: float, lasts: float | None, expected: dict[str, float]) -> None:
    now = facts(2, [HeldDevices("ours", (UUIDS[0],), ends=ends)])
    assert forecast([entry("a"), entry("b")], now, lambda _: lasts) == expected


def test_no_start_is_promised_that_nobody_knows() -> None:
    now = facts(2, [HeldDevices("ours", (UUIDS[0],))])
    queue = [entry("a", 2), entry("b", held=True), on_cpu("c", on_slurm=True)]
    assert forecast(queue, now, lambda _: 10.0) == {"a": None, "b": None, "c": None}
