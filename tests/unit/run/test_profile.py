"""Profiling: which steps, whatever happens meanwhile, and how a device's time is divided."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from tests.kit.recorded import CONFIG
from tests.kit.recorder import Recorder
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.contract.events import COMMUNICATION, COPIES, DATA, HOST, KERNELS, KINDS, Alert
from tuiapp.trainers.rank.checkpoints import Checkpoints, Patience
from tuiapp.trainers.rank.loop import Evaluate, Step, training
from tuiapp.trainers.rank.profile import spent
from tuiapp.trainers.rank.reporter import Reporter, Span, Traced
from tuiapp.trainers.rank.stop_gate import StopGate

EPOCH = 29
"""Steps of one, with this configuration."""


class Told(Recorder):
    """A reporter whose profiler notes between which steps it was on."""

    def __init__(self, tmp_path: Path, error: str = "") -> None:
        super().__init__()
        self.profiles = tmp_path / "profiles"
        self.profiler = self
        self.done: list[int] = []
        """Steps made so far."""
        self.spans: list[tuple[int, int]] = []
        self.alerts: list[Alert] = []
        self.error = error

    def start(self, directory: Path | None) -> None:
        if self.error == "start":
            raise RuntimeError("no CUPTI")
        assert directory == self.profiles / f"step-{len(self.done) + 1}"  # type: ignore[operator]
        self.spans.append((len(self.done) + 1, 0))

    def stop(self) -> tuple[list[Traced], Path | None]:
        self.spans[-1] = (self.spans[-1][0], len(self.done))
        if self.error == "stop":
            raise RuntimeError("no room")
        return [Traced(0, [])], self.profiles / "a" / "trace.json.gz"  # type: ignore[operator]

    def send(self, event: Any) -> None:
        if isinstance(event, Alert):
            self.alerts.append(event)
        else:
            super().send(event)


class Nothing:
    resumed = None
    patience = Patience("accuracy", 0)


def run(told: Told, *, epochs: int = 3) -> list[int]:
    """Trains, and returns the steps; a profile must be over before a model is evaluated."""
    plan = make_plan(msgspec.structs.replace(CONFIG, epochs=epochs, checkpoint_every=0))
    assert plan.steps_per_epoch == EPOCH
    for work in training(plan, cast(Reporter, told), cast(Checkpoints, Nothing())):
        match work:
            case Step():
                told.done.append(work.number)
                work.done(0.0)
            case Evaluate():
                assert all(last for _, last in told.spans)
    return told.done


@pytest.mark.parametrize(
    ("asked", "taken"),
    [
        ((1, 10), (1, 10)),
        ((5, 10), (5, 14)),
        ((20, 10), (20, 29)),
        ((21, 10), (30, 39)),
        ((5, 40), (30, 58)),
        ((80, 10), (80, 87)),
    ],
)
def test_all_steps_are_of_one_epoch(asked: tuple[int, int], taken: tuple[int, int], tmp_path: Path) -> None:
    """Those of the next one if this has too few left, and the last one's if there is no other."""
    told = Told(tmp_path)
    told.profile_at = asked
    assert len(run(told)) == 3 * EPOCH
    assert told.spans == [taken]
    (found,) = told.profiled
    assert (found.step, found.step + found.steps - 1) == taken
    assert found.trace == "profiles/a/trace.json.gz"
    assert sum(found.spent.values()) == pytest.approx(found.seconds)


def test_a_run_that_stops_meanwhile_says_how_many_steps_it_was(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.profile_at, told.stop_at = (5, 10), 9
    assert len(run(told)) == 8
    assert [(one.step, one.steps) for one in told.profiled] == [(5, 4)]


@pytest.mark.parametrize(
    ("asked", "stop_at", "last"), [((9, 10), 9, 8), ((21, 10), 25, 24), ((3 * EPOCH + 1, 10), 0, 3 * EPOCH)]
)
def test_a_run_that_ends_before_says_that_none_was(
    asked: tuple[int, int], stop_at: int, last: int, tmp_path: Path
) -> None:
    """Asked for with the stop, or too late in an epoch before it, or during the last step."""
    told = Told(tmp_path)
    told.profile_at, told.stop_at = asked, stop_at
    assert run(told)[-1] == last
    assert (told.spans, told.profiled) == ([], [])
    [alert] = told.alerts
    text = f"10 steps were to be profiled, and none was: the run ended after step {last}"
    assert (alert.kind, alert.step, alert.text) == ("profile", last, text)


@pytest.mark.parametrize("error", ["start", "stop"])
def test_a_profiler_that_fails_stops_nothing(error: str, tmp_path: Path) -> None:
    told = Told(tmp_path, error)
    told.profile_at = (5, 10)
    assert len(run(told)) == 3 * EPOCH
    assert not told.profiled
    (alert,) = told.alerts
    assert alert.kind == "profile"
    assert "RuntimeError: no" in alert.text
    assert told.phases[-1] != "profiling"


def test_the_ranks_begin_after_the_step_that_they_agreed_on() -> None:
    gate = StopGate()
    gate.enter(4)
    gate.decide(6, stop=False, profile=10)
    assert [gate.profiles_before(step) for step in (5, 6, 7, 7)] == [0, 0, 10, 0]


def _spans() -> Iterator[some.SearchStrategy[Span]]:
    second = some.integers(0, 40)
    yield some.builds(
        lambda kind, start, length: Span(kind, kind, start / 8, (start + length) / 8, length / 8),
        some.sampled_from(KINDS),
        second,
        some.integers(0, 12),
    )


@given(some.lists(next(_spans()), max_size=30), some.integers(0, 8))
def test_the_parts_of_the_time_are_the_whole(spans: list[Span], waited: int) -> None:
    """As counted second by second."""
    seconds, counted = 8.0, dict.fromkeys(KINDS, 0.0)
    for tick in np.arange(0, seconds, 1 / 8):
        on = {span.kind for span in spans if span.start <= tick < span.end}
        first = next((kind for kind in (KERNELS, COMMUNICATION, COPIES) if kind in on), HOST)
        counted[first] += 1 / 8
    counted[DATA] = min(float(waited), counted[HOST])
    counted[HOST] -= counted[DATA]
    assert spent(spans, seconds, waited) == pytest.approx(counted)
