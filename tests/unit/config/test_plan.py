"""What follows from a configuration and its data."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tuiapp.trainers.config.plan import make_plan, read_plan, write_plan
from tuiapp.trainers.config.run_config import RunConfig

PLAN = make_plan(RunConfig(platform="cpu", devices=2, global_batch_size=100, epochs=3, max_steps=20))
"""14 steps an epoch; the run ends within the second."""


def test_where_an_epoch_ends_and_what_is_due_there() -> None:
    assert [step for step in range(1, 21) if PLAN.ends_epoch(step)] == [14, 20]
    assert [step for step in range(1, 21) if PLAN.evaluates_after(step)] == [14, 20]
    assert [step for step in range(1, 21) if PLAN.saves_after(step)] == [20]
    assert [step for step in range(1, 21) if PLAN.saves_after(step, due=True)] == [14, 20]
    assert (PLAN.batch_of(1), PLAN.left_out, PLAN.processes) == (50, 37, 2)


@pytest.mark.parametrize(
    ("key", "value", "saved"),
    [("checkpoint_every", 1, [14, 20]), ("checkpoint_every", 0, []), ("early_stop", 2, [14, 20])],
)
def test_what_is_asked_for_is_saved_without_delay(key: str, value: int, saved: list[int]) -> None:
    plan = make_plan(replace(PLAN.config, **{key: value}))
    assert [step for step in range(1, 21) if plan.saves_after(step)] == saved


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write_plan(path, PLAN)
    assert read_plan(path) == PLAN
    path.write_text(path.read_text()[:-40])
    with pytest.raises(ValueError, match=r"plan\.json: .*truncated"):
        read_plan(path)
