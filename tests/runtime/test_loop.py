"""What the loop has a backend do, in which order, without any framework."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from tests.backends.recorder import Recorder, Shelf
from trainers.checkpoints import Checkpoints, Saved
from trainers.config.plan import make_plan
from trainers.config.run_config import RunConfig
from trainers.data.datasets import epoch_order
from trainers.loop import Evaluate, Export, Save, Step, training
from trainers.runtime.reporter import Reporter

CONFIG = RunConfig(platform="cpu", devices=2, global_batch_size=479, epochs=3, eval_every=2)
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
    assert {one.examples for one in report.steps} == {PLAN.local_batch_size}
    phases = "training checkpointing training evaluating checkpointing training evaluating checkpointing"
    assert report.phases == phases.split()


def test_a_stop_saves_first_and_exports_nothing() -> None:
    report, shelf = Recorder(), Shelf()
    report.stop_at, report.save_at = 5, 4
    assert follow(report, shelf)[-2:] == ["4", "save 4"]
    assert list(shelf.saved) == [3, 4]


def test_a_resumed_run_makes_the_steps_that_are_left() -> None:
    assert follow(Recorder(), Shelf(Saved(7, {}, {}))) == ["8!", "9", "evaluate 9", "save 9", "export"]
    assert follow(Recorder(), Shelf(Saved(9, {}, {}))) == ["export"]


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
    waited: list[tuple[int, int]] = []
    report = Recorder()
    follow(report, Shelf(), wait=lambda loss: waited.append((loss, len(report.steps) + 1)), limit=1)
    # A loss, and the step before whose report it was waited for: the one after it, or an epoch's last.
    assert waited == [(1, 2), (2, 3), (3, 3), (4, 5), (5, 6), (6, 6), (7, 8), (8, 9), (9, 9)]
