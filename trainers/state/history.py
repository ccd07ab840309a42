"""Which steps of a run's earlier attempts still count: the only place that decides it.

What an attempt did after the step from which a later one continues does not count: that one does it again. A built-in
trainer names this step as it starts. A script resumes from a checkpoint of its own: its first metrics of training show
it, and as long as there are none, all that earlier attempts did counts.

`resume_point` applies the same rule from a journal's end, because it must not read all of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainers.contract.events import AnyEvent, Event, Metrics, RunStarted
from trainers.contract.metrics import MAX_STEP


class Attempts:
    """Follows the attempts of a run through its events."""

    def __init__(self) -> None:
        self.present: RunStarted | None = None
        self.resuming = False
        """Whether it is not known yet from which step the present attempt continues."""

    def add(self, event: AnyEvent | Event) -> int | None:
        """Returns the step from which the present attempt continues, of the event that shows it; otherwise None.

        All that earlier events reported of later steps does not count any more.
        """
        if isinstance(event, RunStarted):
            if self.present is not None and event.attempt <= self.present.attempt:
                return None
            self.present, self.resuming = event, event.resumed_from is None
            return None if event.resumed_from is None else min(max(0, event.resumed_from), MAX_STEP)
        if self.resuming and isinstance(event, Metrics) and event.is_training:
            self.resuming = False
            return max(0, event.first_step - 1)
        return None


def counted_steps(events: Iterable[AnyEvent]) -> dict[int, int]:
    """Returns up to which step each attempt counts; an attempt of which all counts is not in it."""
    attempts, counted = Attempts(), dict[int, int]()
    for event in events:
        if (step := attempts.add(event)) is not None and attempts.present is not None:
            earlier = range(1, attempts.present.attempt)
            counted |= {attempt: min(step, counted.get(attempt, step)) for attempt in earlier}
    return counted
