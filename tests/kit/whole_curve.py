"""What a journal lacks of its run, found out without the program's own `tuiapp.trainers.state.history`."""

from __future__ import annotations

from collections.abc import Sequence

from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import AnyEvent, Checkpoint, Metrics, RunStarted
from tuiapp.trainers.contract.metrics import TEST_ACCURACY


def missing_steps(events: Sequence[AnyEvent]) -> list[int]:
    """The steps that some rank lacks in the history that is in force."""
    steps, _, _ = _in_force(events)
    last = max((max(of_rank, default=0) for of_rank in steps.values()), default=0)
    return sorted(set().union(*(set(range(1, last + 1)) - set(of_rank) for of_rank in steps.values())))


def not_in_a_row(events: Sequence[AnyEvent]) -> list[str]:
    """The ranks whose steps in the history that is in force have a gap, or come twice."""
    steps, _, _ = _in_force(events)
    return [f"rank {rank}: its steps are not in a row" for rank, each in steps.items() if not _in_a_row(each)]


def what_lacks(events: Sequence[AnyEvent], config: RunConfig) -> list[str]:
    """What is missing of the history that is in force, or comes twice: steps, and the evaluations and checkpoints due.

    Args:
        events: The whole journal's, of a run that has ended in order.
        config: The run's, as of its last attempt.
    """
    plan = make_plan(config)
    steps, evaluated, saved = _in_force(events)
    found = not_in_a_row(events)
    lasts = {max(each, default=0) for each in steps.values()}
    if len(lasts) > 1:
        found.append(f"the ranks' last steps are {sorted(lasts)}")
    done = range(1, max(lasts, default=0) + 1)
    if evaluated != [step for step in done if plan.evaluates_after(step)]:
        found.append(f"evaluated after {evaluated}")
    if due := [step for step in done if plan.saves_after(step) and step not in saved]:
        found.append(f"no checkpoint of {due}")
    return found


def _in_a_row(steps: list[int]) -> bool:
    return steps == list(range(1, len(steps) + 1))


def _in_force(events: Sequence[AnyEvent]) -> tuple[dict[int, list[int]], list[int], list[int]]:
    steps: dict[int, list[int]] = {}
    evaluated: list[int] = []
    saved: list[int] = []
    for event in events:
        if isinstance(event, RunStarted):
            for each in (*steps.values(), evaluated, saved):
                each[:] = [step for step in each if step <= (event.resumed_from or 0)]
            steps = {rank: steps.get(rank, []) for rank in range(event.world_size)}
        elif isinstance(event, Metrics) and TEST_ACCURACY in event.values:
            evaluated.append(event.last_step)
        elif isinstance(event, Metrics) and event.is_training:
            steps[event.rank] += range(event.first_step, event.last_step + 1)
        elif isinstance(event, Checkpoint):
            saved.append(event.step)
    return steps, evaluated, saved
