"""The metrics that every view knows by name, and what follows from a batch of values.

Any other name is charted, compared and exported all the same. Names group by slashes: `test/accuracy` is of `test`.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul

from trainers.contract.events import Metrics

LOSS = "loss"
"""A rank's own mean loss over its part of the global batch, before the update."""
LEARNING_RATE = "lr"
"""That the step used; of an entry of several steps the last one's."""
GRADIENT_NORM = "grad_norm"
"""Global L2 norm of the gradients, averaged over the devices, before they are clipped; rank 0 alone reports it, where
the run clips."""
EXAMPLES = "examples"
"""Examples that the rank went through in the entry: the sum over its steps."""
STEP_TIME = "step_time"
"""Mean seconds a step, evaluations and checkpoints excluded."""
RATE = "examples_per_second"
"""That of the rank while it trains: readers derive it from the two above, nobody reports it."""
DATA_WAIT = "data_wait"
"""Mean seconds a step until its batch was there; of a process that owns several devices, of the first alone."""
TEST_LOSS = "test/loss"
"""Of the model on the whole test set, every example once, over all devices: the mean over the examples."""
TEST_ACCURACY = "test/accuracy"
"""From 0 to 1."""
TEST_EXAMPLES = "test/examples"
TEST_SECONDS = "test/seconds"
"""What the evaluation took."""

HELD_OUT = ("test", "val", "valid", "validation", "eval")
"""Groups whose metrics are measured now and then, on data that is not trained on."""

MAX_STEP = 2**53
"""What a float still counts exactly: a larger step is damage."""

MAX_RANKS = 4096
"""Of a run: a higher rank is damage."""

MAX_COUNT = 2**31
"""Of the steps that share an entry."""


def group_of(name: str) -> str:
    """What stands before a metric's first slash; "" without one."""
    return name.partition("/")[0] if "/" in name else ""


def sound_entries(event: Metrics) -> int:
    """How many entries an event has; 0 where its lists do not go together, or its numbers count nothing."""
    sizes = set(map(len, event.values.values()))
    if len(sizes) != 1 or not 0 <= event.first_step <= MAX_STEP or not 0 <= event.rank < MAX_RANKS:
        return 0
    size, counts = sizes.pop(), event.counts
    if counts is not None and (len(counts) != size or (size and not 0 < min(counts) <= max(counts) < MAX_COUNT)):
        return 0
    return size if event.last_step <= MAX_STEP else 0


def total(values: Sequence[float | None], counts: Sequence[int] | None = None) -> float:
    """The sum of an event's values, each times the steps that it stands for; nulls are left out."""
    try:
        return sum(map(mul, counts, values) if counts else values)
    except TypeError:
        pairs = zip(values, counts or [1] * len(values), strict=False)
        return sum(value * count for value, count in pairs if value is not None)
