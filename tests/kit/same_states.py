"""Whether two states are of the same run."""

from __future__ import annotations

import pytest

from tests.kit.digest_runs import assert_same_series
from tuiapp.trainers.state.curves import Curves
from tuiapp.trainers.state.run_state import RunState

SAME = (
    "beginning", "stop_asked", "marred",
    "run_id", "started", "ended", "lost", "status", "stop_requested", "checkpoints", "first_time", "last_time",
    "arrays", "gpus", "host", "telemetry_problems", "alerts", "failures", "stacks", "log",
    "log_count", "step", "phase", "total_steps", "test_accuracy", "facts", "nodes", "host_history",
)  # fmt: skip
SAME_OF_RANKS = (
    "pid", "device", "device_name", "uuid", "phase", "step", "loss", "last_time", "process", "cpu",
    "framework", "failure",
)  # fmt: skip


def assert_same(one: RunState, other: RunState) -> None:
    for name in SAME:
        assert getattr(one, name) == getattr(other, name), name
    assert sorted(one.ranks) == sorted(other.ranks)
    for rank, first in one.ranks.items():
        second = other.ranks[rank]
        for name in SAME_OF_RANKS:
            assert getattr(first, name) == getattr(second, name), (rank, name)
        assert first.pace.seconds_per_step == pytest.approx(second.pace.seconds_per_step)
        assert first.pace.examples_per_second == pytest.approx(second.pace.examples_per_second)
        assert first.pace.step_at(one.last_time - 3) == pytest.approx(second.pace.step_at(one.last_time - 3))
    assert one.remaining() == pytest.approx(other.remaining())
    assert one.elapsed(one.last_time + 3) == pytest.approx(other.elapsed(one.last_time + 3))
    assert one.stall == other.stall
    assert_same_curves(one.curves, other.curves)
    assert one.utilization.keys() == other.utilization.keys()
    for uuid, curve in one.utilization.items():
        assert_same_series(curve.series, other.utilization[uuid].series)


def assert_same_curves(one: Curves, other: Curves) -> None:
    assert one.names.keys() == other.names.keys()
    assert (one.evaluated, one.steps_per_epoch) == (other.evaluated, other.steps_per_epoch)
    assert one.gaps.spans == other.gaps.spans
    # repr: of the epochs with a loss that is not finite, too.
    assert repr(one.epochs.rows) == repr(other.epochs.rows)
    assert (one.timeline.steps, one.timeline.times) == (other.timeline.steps, other.timeline.times)
    for name in one.names:
        assert one.ranks(name) == other.ranks(name)
        for rank in one.ranks(name):
            assert_same_series(one[rank, name], other[rank, name])
