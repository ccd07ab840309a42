"""The metrics that every view knows by name, and how a batch of values is interpreted.

Any other name is charted, compared and exported all the same. What it is measured on is its group, in any of the
spellings in use: `val/f1`, `val_f1` and `F1/val` are in `val`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from math import inf, isfinite, isnan
from operator import mul
from struct import Struct
from typing import TypeGuard

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
SYNC_WAIT = "sync_wait"
"""Seconds of a step in which a rank, its own gradients computed, waited for those of all ranks: for their exchange, and
for ranks that are later. Of some steps only, from backends whose framework measures it."""
EPOCH = "epoch"
"""The epoch that a script is in: see `tuiapp.trainers.state.reported_epochs`."""
BESIDE_STEPS = (SYNC_WAIT,)
"""Metrics that are known some steps later: a report of these alone says nothing of how far its rank has come."""
SCALE = "loss_scale"
"""What the loss is multiplied by in float16, after an epoch; reported by rank 0, as the next."""
SKIPPED = "skipped_steps"
"""Steps so far that changed no weight, as their gradients overflowed in float16."""
TEST = "test"
"""The group of a built-in trainer's evaluations."""
TEST_LOSS = "test/loss"
"""Mean over all examples of the test set, each counted once, over all devices."""
TEST_ACCURACY = "test/accuracy"
"""From 0 to 1; a script may report it in per cent: see `accuracy_percent`."""
TEST_EXAMPLES = "test/examples"
TEST_SECONDS = "test/seconds"

HELD_OUT = ("test", "val", "valid", "validation", "eval")
"""Groups of metrics measured now and then, on data not trained on; the first that there is is the evaluation."""
LOSSES = (LOSS, LOSS.capitalize())
ACCURACIES = ("accuracy", "acc", "Accuracy")
"""What a loss and an accuracy are called in a group."""

MAX_STEP = 2**53
"""The largest that a float counts exactly: a larger step is damage."""

MAX_RANKS = 4096
"""Per run: a higher rank is damage."""

MAX_COUNT = 2**31
"""Most steps that share an entry."""


_SINGLE = Struct("f")


def shortest(value: float) -> float:
    """Returns the shortest number that rounds to one in single precision: 0.1 for 0.10000000149011612."""
    try:
        if _SINGLE.unpack(_SINGLE.pack(value))[0] == value:
            tries = (float(f"{value:.{digits}g}") for digits in (6, 7, 8, 9))
            return next(attempt for attempt in tries if _SINGLE.unpack(_SINGLE.pack(attempt))[0] == value)
    except OverflowError:
        pass
    return value


_MEASURED_ON = ("train", *HELD_OUT)


@lru_cache(16_384)
def split(name: str) -> tuple[str, str]:
    """Returns a metric's group, "" for none, and the rest of its name: val and f1 for `val/f1`, `val_f1`, `f1/val`."""
    first, slash, last = name.partition("/")
    if not slash:
        first, _, last = name.partition("_")
        return (first, last) if first in _MEASURED_ON and last else ("", name)
    return (last, first) if last in _MEASURED_ON and first not in _MEASURED_ON else (first, last)


def group_of(name: str) -> str:
    """Returns a metric's group; "" without one."""
    return split(name)[0]


@lru_cache(maxsize=8192)
def is_loss(name: str) -> bool:
    """Returns whether a metric may be the loss that is trained on: `loss`, or `…/loss` that is not of held-out data."""
    group, last = split(name)
    return last.rpartition("/")[2] in LOSSES and group not in HELD_OUT


def loss_of(names: Collection[str]) -> str:
    """Returns the loss that is trained on: `loss`, or else the first that may be it; "" without one."""
    return LOSS if LOSS in names else next(filter(is_loss, names), "")


def _spellings(group: str, last: str) -> Iterator[str]:
    yield from (f"{group}/{last}", f"{group}_{last}", f"{last}/{group}")


def _held_out(group: str, last: str, names: Collection[str]) -> str:
    return next((name for name in _spellings(group, last) if name in names), "")


def held_out_of(name: str, names: Collection[str]) -> str:
    """Returns a training metric's held-out counterpart, as `test/loss` of `loss` or `train/loss`, or "".

    The number of examples in an evaluation is no counterpart of that in a step.
    """
    group, last = split(name)
    if group in HELD_OUT or last == EXAMPLES:
        return ""
    return next((counterpart for held_out in HELD_OUT if (counterpart := _held_out(held_out, last, names))), "")


_EVALUATED = frozenset(
    name for group in HELD_OUT for last in (*LOSSES, *ACCURACIES) for name in _spellings(group, last)
)


def evaluation_of(names: Collection[str]) -> tuple[str, str, str]:
    """Returns the held-out group that is the run's evaluation, its loss and its accuracy; each "" without one."""
    if _EVALUATED.isdisjoint(names):
        return "", "", ""
    for group in HELD_OUT:
        loss, accuracy = (
            next((name for last in of if (name := _held_out(group, last, names))), "") for of in (LOSSES, ACCURACIES)
        )
        if loss or accuracy:
            return group, loss, accuracy
    return "", "", ""


def accuracy_percent(accuracy: float) -> float:
    """Returns an accuracy in per cent, as which one above 1 is taken already."""
    return accuracy if accuracy > 1 else 100 * accuracy


def total(values: Sequence[float | None], counts: Collection[float] | None = None) -> float:
    """Returns the sum of an event's values, each times its steps; those that are not finite are skipped."""
    try:  # four a rank's report: `suppress` takes as long as the sum
        if isfinite(simple := sum(map(mul, counts, values) if counts else values)):
            return simple
    except TypeError:
        pass
    pairs = zip(values, counts or [1] * len(values), strict=False)
    return sum(value * count for value, count in pairs if value is not None and isfinite(value))


def mean(values: Collection[float | None], weights: Collection[float] = ()) -> float | None:
    """Returns the mean of what the ranks report, by their examples; None without any, or if one of them is NaN."""
    finite = [value for value in values if value is not None]
    if not finite or len(finite) < len(values):
        return None
    if len(set(weights)) > 1 and all(weight > 0 for weight in weights):
        return total(finite, weights) / sum(weights)
    return sum(finite) / len(finite)


def join(values: Sequence[float], weights: Sequence[float] = ()) -> float:
    """Returns what stands for neighbouring values: their mean; the last of equals, and of counters that never fall."""
    first, last = values[0], values[-1]
    # Whether it may be one of these is asked of the ends first: most are neither.
    if first == last or (first < last and first % 1 == 0 == last % 1):
        is_counter = first == last or all(value % 1 == 0 for value in values)
        if is_counter and all(before <= after for before, after in pairwise(values)):
            return last
    if len(set(weights)) > 1 and min(weights) > 0:
        weighted: float = sum(map(mul, values, weights)) / sum(weights)
        if isfinite(weighted):
            return weighted
    # One value that is not finite makes a mean that is not: it must not hide what happened.
    average = sum(values) / len(values)
    if isfinite(average) or not all(map(isfinite, values)):
        return average
    return sum(value / len(values) for value in values)


def bound(pick: Callable[..., float], values: Sequence[float], joined: float) -> float | None:
    """Returns the least or the greatest of finite values; a finite `joined` says that all are."""
    if isfinite(joined):
        return pick(values)
    extreme = pick(filter(isfinite, values), default=inf)
    return extreme if isfinite(extreme) else None


def not_nan(value: float) -> float | None:
    """Returns a value as JSON holds it: NaN is null."""
    return None if isnan(value) else value


def last_examples(values: Mapping[str, Sequence[float | None]], counts: Sequence[int] | None) -> float:
    """Returns a step's examples, as of an event's last entry; 0 if it does not say."""
    sizes = values.get(EXAMPLES)
    return (sizes[-1] or 0.0) / (counts[-1] if counts else 1) if sizes else 0.0


def is_number(value: object) -> TypeGuard[int | float]:
    """Returns whether it is one, which True and False are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)
