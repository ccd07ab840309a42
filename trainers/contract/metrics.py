"""The metrics that every view knows by name, and how a batch of values is interpreted.

Any other name is charted, compared and exported all the same. Names are grouped by slashes: `test/accuracy` is in
`test`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import mul

LOSS = "loss"
"""A rank's mean loss over its part of the global batch, before the update."""
LEARNING_RATE = "lr"
"""Used by the step; of an entry of several steps the last one's."""
GRADIENT_NORM = "grad_norm"
"""Global L2 norm of the gradients, averaged over the devices, before clipping; reported by rank 0, if the run clips."""
EXAMPLES = "examples"
"""Examples processed by the rank in the entry: the sum over its steps."""
STEP_TIME = "step_time"
"""Mean seconds per step, without evaluations and checkpoints."""
RATE = "examples_per_second"
"""A rank's rate while it trains: readers derive it from the two above, nobody reports it."""
DATA_WAIT = "data_wait"
"""Mean seconds per step until its batch was there; if a process owns several devices, of the first only."""
TEST_LOSS = "test/loss"
"""Mean over all examples of the test set, each counted once, over all devices."""
TEST_ACCURACY = "test/accuracy"
"""From 0 to 1."""
TEST_EXAMPLES = "test/examples"
TEST_SECONDS = "test/seconds"

HELD_OUT = ("test", "val", "valid", "validation", "eval")
"""Groups of metrics measured now and then, on data not trained on."""

MAX_STEP = 2**53
"""The largest that a float counts exactly: a larger step is damage."""

MAX_RANKS = 4096
"""Per run: a higher rank is damage."""

MAX_COUNT = 2**31
"""Of the steps that share an entry."""


def group_of(name: str) -> str:
    """The part before a metric's first slash; "" without one."""
    return name.partition("/")[0] if "/" in name else ""


def total(values: Sequence[float | None], counts: Sequence[int] | None = None) -> float:
    """Sum of an event's values, each times its steps; nulls are skipped."""
    try:
        return sum(map(mul, counts, values) if counts else values)
    except TypeError:
        pairs = zip(values, counts or [1] * len(values), strict=False)
        return sum(value * count for value, count in pairs if value is not None)


def mean(values: Collection[float | None]) -> float | None:
    """Mean of what the ranks report; None without any, or if one of them is not finite."""
    finite = [value for value in values if value is not None]
    return sum(finite) / len(finite) if finite and len(finite) == len(values) else None
