"""What the loop has a backend do, in which order, without any framework."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest
from msgspec.structs import replace

from tests.kit.rank_pipe import Pipe
from tests.kit.recorder import Recorder, Shelf
from tests.kit.reported import values
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.metrics import DATA_WAIT, STEP_TIME
from tuiapp.trainers.rank import loop, reporter
from tuiapp.trainers.rank.checkpoints import Checkpoints, Saved
from tuiapp.trainers.rank.loop import Evaluate, Export, Save, Step, training
from tuiapp.trainers.rank.reporter import Reporter
from tuiapp.trainers.sources.datasets import epoch_order

CONFIG = RunConfig(platform="cpu", devices=2, global_batch_size=479, epochs=3, eval_every=2, checkpoint_every=1)
"""3 steps an epoch, 9 in all."""
PLAN = make_plan(CONFIG)


def follow(report: Recorder, shelf: Shelf, **more: Any) -> list[str]:
    """The work in words, done at once; a step's loss is its number."""
    words = []
    for work in training(PLAN, cast(Reporter, report), cast(Checkpoints, shelf), **more):
        match work:
            case Step(number):
                words.append(f"{number}{'!' if work.is_first else ''}")
                work.done(number)
            case Evaluate(step):
                words.append(f"evaluate {step}")
                work.done(np.ones(1 + 10 * 10))
            case Save(step):
                words.append(f"save {step}")
                work.done({}, {})
            case Export():
                words.append("export")
    return words


def test_a_run_from_first_to_last() -> None:
    report, shelf = Recorder(), Shelf()
    work = "1! 2 3, save 3, 4 5 6, evaluate 6, save 6, 7 8 9, evaluate 9, save 9, export"
    assert " ".join(follow(report, shelf)) == work.replace(",", "")
    assert [one.step for one in report.steps] == list(range(1, 10))
    assert {one.examples for one in report.steps} == {PLAN.batch_of(0)}
    phases = "training checkpointing training evaluating checkpointing training evaluating checkpointing"
    assert report.phases == phases.split()


def test_a_stop_saves_first_and_exports_nothing() -> None:
    report, shelf = Recorder(), Shelf()
    report.stop_at, report.save_at = 5, 4
    assert follow(report, shelf)[-2:] == ["4", "save 4"]
    assert list(shelf.saved) == [3, 4]


def test_a_stop_right_after_an_epoch_saves_no_second_time() -> None:
    report, shelf = Recorder(), Shelf()
    report.stop_at, report.save_at = 4, 3
    assert follow(report, shelf) == ["1!", "2", "3", "save 3"]
    # A checkpoint that was asked for is saved, and is the answer.
    report = Recorder()
    report.save_at = 3
    assert follow(report, Shelf())[:6] == ["1!", "2", "3", "save 3", "save 3", "4"]
    # Before the first step nothing is saved yet.
    report = Recorder()
    report.stop_at, report.save_at = 1, 0
    assert follow(report, Shelf()) == ["save 0"]


def test_batches_are_those_of_the_epoch_and_placed_once_for_all_its_steps() -> None:
    placed: list[int] = []

    def place(order: np.ndarray[Any, Any]) -> list[Any]:
        placed.append(len(order))
        return [rows.tolist() for rows in order]

    steps = [
        work
        for work in training(PLAN, cast(Reporter, Recorder()), cast(Checkpoints, Shelf(Saved(1, {}, {}))), place=place)
        if isinstance(work, Step)
    ]
    assert placed == [2, 3, 3]
    order = epoch_order(PLAN.data.train_examples, 479, CONFIG.seed, 1)
    assert steps[0].rows == steps[0].batch.tolist() == order[1].tolist()


def test_steps_in_flight_are_bounded_and_none_outlasts_its_epoch() -> None:
    report = Recorder()
    marked: list[int] = []
    waited: list[tuple[int, int, int]] = []

    def mark(loss: int) -> int:
        marked.append(loss)
        return -loss

    def wait(mark: int) -> None:
        waited.append((-mark, marked[-1], len(report.steps)))

    follow(report, Shelf(), mark=mark, wait=wait, limit=1)
    # A step, the last one given when it was waited for, and how many were reported by then: it is reported after that.
    # The first is waited for, whose sharding is reported, and an epoch's last, which an evaluation may follow.
    given = [1, 3, 3, 5, 6, 6, 8, 9, 9]
    assert waited == [(step, last, step - 1) for step, last in enumerate(given, start=1)]
    assert [one.loss for one in report.steps] == list(range(1, 10))


def test_steps_in_flight_are_reported_before_a_checkpoint_and_a_stop() -> None:
    report, shelf, reported = Recorder(), Shelf(), list[int]()
    report.save_at, report.stop_at = 5, 9
    waited: list[int] = []
    for work in training(PLAN, cast(Reporter, report), cast(Checkpoints, shelf), wait=waited.append):
        match work:
            case Step(number):
                work.done(number)
            case Save():
                reported.append(len(report.steps))
    assert reported == [3, 5, 6]
    assert [one.step for one in report.steps] == waited == list(range(1, 9))


def test_steps_in_flight_of_a_backend_that_fails_are_reported_without_waiting(pipe: Pipe) -> None:
    waited: list[float] = []
    plan = make_plan(replace(CONFIG, global_batch_size=64, epochs=1))
    for work in training(plan, pipe.report, cast(Checkpoints, Shelf()), wait=waited.append):
        assert isinstance(work, Step)
        if work.number == 13:
            break
        work.done(float(work.number))
    assert waited == [1, 2, 3, 4]
    pipe.close()
    assert pipe.steps() == list(range(1, 13))
    assert pipe.losses() == list(range(1, 13))
    assert len(waited) == 4


class Device:
    """A GPU in a time of its own: it computes one thing after another, and giving it something takes a moment."""

    def __init__(self) -> None:
        self.now = self.free_at = 0.0

    def give(self, seconds: float) -> None:
        self.now += 0.01
        self.free_at = max(self.now, self.free_at) + seconds

    def event(self) -> Event:
        return Event(self, self.free_at)


@dataclass
class Event:
    device: Device
    ready_at: float

    def synchronize(self) -> None:
        self.device.now = max(self.device.now, self.ready_at)


@pytest.mark.parametrize("waits", [True, False])
def test_step_times_are_the_device_s_and_no_evaluation_waits_for_steps(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    device = Device()
    for module in (loop, reporter):
        monkeypatch.setattr(module, "perf_counter", lambda: device.now)
    more: dict[str, Any] = {"mark": lambda loss: device.event(), "wait": Event.synchronize} if waits else {}
    plan = make_plan(replace(CONFIG, global_batch_size=64, epochs=1))
    for work in training(plan, pipe.report, cast(Checkpoints, Shelf()), **more):
        match work:
            case Step(number):
                device.give(1.0)
                work.done(float(number))
                if work.is_first:
                    # How the arrays are sharded.
                    device.now += 5.0
            case Evaluate():
                device.give(2.0)
                device.event().synchronize()
                work.done(np.ones(1 + 10 * 10))
    pipe.close()
    times = [seconds or 0.0 for seconds in values(pipe.messages, STEP_TIME)]
    (evaluation,) = pipe.evaluations()
    assert len(times) == plan.total_steps == 22
    if waits:
        # After the first and the reporting, the device begins anew.
        assert times == pytest.approx([1.01, 1.01] + [1.0] * 20)
        assert evaluation.seconds == pytest.approx(2.01)
    else:
        assert times == pytest.approx([0.01] * 22)
        assert evaluation.seconds > 15


def test_the_wait_for_a_batch_is_that_of_asking_for_it(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device()
    for module in (loop, reporter):
        monkeypatch.setattr(module, "perf_counter", lambda: device.now)

    def place(order: np.ndarray[Any, Any]) -> Iterator[Any]:
        # The numbers of an epoch are moved at once.
        device.now += 3.0
        return read(order)

    def read(order: np.ndarray[Any, Any]) -> Iterator[Any]:
        for rows in order:
            device.now += 0.25
            yield rows

    plan = make_plan(replace(CONFIG, epochs=2))
    for work in training(plan, pipe.report, cast(Checkpoints, Shelf()), place=place):
        if isinstance(work, Step):
            device.now += 1.0
            work.done(float(work.number))
            if work.is_first:
                device.now += 5.0
    pipe.close()
    assert values(pipe.messages, DATA_WAIT) == pytest.approx([0.25] * 6)
    # The second epoch is placed after the last step of the first was given, and before that is waited for.
    assert values(pipe.messages, STEP_TIME) == pytest.approx([1.25, 1.25, 4.25, 1.25, 1.25, 1.25])


def test_the_next_epoch_is_placed_while_the_last_steps_of_this_one_are_in_flight() -> None:
    report = Recorder()
    reported: list[int] = []

    def place(order: np.ndarray[Any, Any]) -> Iterator[Any]:
        reported.append(len(report.steps))
        return iter(order)

    assert follow(report, Shelf(), place=place, wait=lambda loss: None, limit=2)[-1] == "export"
    # The first is waited for; of the others two are in flight.
    assert reported == [0, 1, 4]
