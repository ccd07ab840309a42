"""The learning rate over a run."""

from __future__ import annotations

from collections.abc import Callable
from math import cos, pi

import pytest
import torch
from msgspec.structs import replace
from torch.optim.lr_scheduler import OneCycleLR

from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig, learning_rate_words
from tuiapp.trainers.rank.schedules import learning_rate, rate_factor

STEPS = 40


def factors(schedule: str, warmup_steps: int = 0, steps: int = STEPS) -> list[float]:
    plan = make_plan(RunConfig(global_batch_size=1, max_steps=steps, schedule=schedule, warmup_steps=warmup_steps))
    assert plan.total_steps == steps
    return [rate_factor(plan, step) for step in range(1, steps + 1)]


def test_linear() -> None:
    assert factors("linear") == pytest.approx([1 - step / STEPS for step in range(STEPS)])


def test_cosine() -> None:
    values = factors("cosine")
    assert values == pytest.approx([(1 + cos(pi * step / STEPS)) / 2 for step in range(STEPS)])
    assert values[STEPS // 2] == pytest.approx(0.5)


def in_torch(make: Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler], steps: int) -> list[float]:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    schedule, found = make(optimizer), []
    for step in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if step < steps - 1:
            schedule.step()
    return found


@pytest.mark.nightly
@pytest.mark.parametrize(("steps", "rise"), [(STEPS, 0), (97, 0), (STEPS, 10), (STEPS, STEPS // 2), (4, 0), (2, 0)])
def test_one_cycle_is_that_of_torch(steps: int, rise: int) -> None:
    wanted = in_torch(lambda one: OneCycleLR(one, 1.0, steps, pct_start=rise / steps if rise else 0.3), steps)
    assert factors("one-cycle", rise, steps) == pytest.approx(wanted, rel=1e-6)


def test_one_cycle_makes_an_only_step_at_the_full_rate() -> None:
    assert factors("one-cycle", steps=1) == [1]


@pytest.mark.parametrize(
    ("given_for", "scaling", "rate", "words"),
    [
        (0, "linear", 0.1, ""),
        (256, "linear", 0.4, "0.1 for 256 → 0.4 at 1,024"),
        (256, "sqrt", 0.2, "0.1 for 256 → 0.2 at 1,024"),
        (1024, "linear", 0.1, "0.1 for 1,024 → 0.1 at 1,024"),
        (4096, "linear", 0.025, "0.1 for 4,096 → 0.025 at 1,024"),
    ],
)
def test_a_rate_for_another_batch(given_for: int, scaling: str, rate: float, words: str) -> None:
    config = RunConfig(
        global_batch_size=1024, learning_rate=0.1, learning_rate_for=given_for, learning_rate_scaling=scaling
    )
    assert learning_rate_words(config) == words
    assert learning_rate(make_plan(config), 1) == pytest.approx(rate)
    warming = make_plan(replace(config, warmup_steps=10, schedule="linear"))
    assert learning_rate(warming, 5) == pytest.approx(rate / 2)


@pytest.mark.parametrize("schedule", ["constant", "cosine", "linear", "step"])
@pytest.mark.parametrize("warmup_steps", [1, 10, STEPS - 1, STEPS])
def test_warm_up(schedule: str, warmup_steps: int) -> None:
    values = factors(schedule, warmup_steps)
    after = factors(schedule, steps=STEPS - warmup_steps) if warmup_steps < STEPS else []
    assert values[:warmup_steps] == pytest.approx([step / warmup_steps for step in range(1, warmup_steps + 1)])
    assert values[warmup_steps:] == pytest.approx(after)


@pytest.mark.parametrize("schedule", ["constant", "cosine", "linear", "one-cycle", "step"])
@pytest.mark.parametrize("warmup_steps", [0, 1, 39, 40, 41, 10_000])
@pytest.mark.parametrize("steps", [1, 2, STEPS])
def test_every_step_has_a_rate(schedule: str, warmup_steps: int, steps: int) -> None:
    values = factors(schedule, warmup_steps, steps)
    assert all(0 < value <= 1 for value in values)
    peak = values.index(max(values))
    assert values[: peak + 1] == sorted(values[: peak + 1])
    assert values[peak:] == sorted(values[peak:], reverse=True)
