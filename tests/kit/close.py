"""Numbers that come to the same but for rounding: how far apart that may bring them, and how far apart they are.

Whatever adds up or multiplies does so in another order on another processor, with other kernels, threads or devices.
Tolerances follow from the arithmetic, in three steps:

1. A rounding is off by at most the part u of a number, its type's unit roundoff. Roundings err independently: n of
   them one after the other, such as a sum of n terms has, are off by √n × u. That is of the worst order, from first
   to last; vectors and blocks, however wide, have fewer roundings after one another, and fused ones half of them.
2. Two computations differ by √2 of that, and the worst of hundreds of numbers lies at three standard deviations:
   `HEADROOM` is both. Beyond it tests keep a factor of three: `pytest --margins` shows differences as parts of their
   tolerances, and none should be above a third, whatever the processor.
3. Training must not magnify: see `in_training`. A case that would is given a lower rate, fewer steps, or SGD.
"""

from __future__ import annotations

from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from tuiapp.trainers.config.run_config import RunConfig

UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Type → its unit roundoff."""
HEADROOM = 4.0
"""Three standard deviations of the difference of two numbers that err alike: 3 × √2, and no more."""
LAYERS = {"mlp": 3, "net": 4, "convnet": 5, "resnet18": 18, "gpt-small": 24}
"""Model → products of matrices, one after the other; back through them are as many."""
SUMS = {"mlp": 784, "net": 1600, "convnet": 864, "resnet18": 4608, "gpt-small": 512}
"""Model → terms of its longest sum, which an output of a layer is of its inputs."""
LOSS = {"gpt-small": 5.6}
"""Model → the loss that it begins with; 2.5 of others: the logarithm of the classes, and some."""
NORM = 2.0
"""Of gradients, where they are not clipped to less."""


class Margin(NamedTuple):
    """One comparison."""

    part: float
    """Of the tolerance: difference ÷ tolerance."""
    difference: float
    tolerance: float


margins: list[Margin] = []
"""Of the comparisons of the test that runs."""


def assert_close(
    found: Any, wanted: Any, within: float, *, relative: bool = False, name: str = "", note: str = ""
) -> None:
    """Fails where two numbers, or arrays of the same shape, are further apart than `within`; notes the margin.

    Args:
        found: What is tested.
        wanted: What it should be.
        within: The tolerance.
        relative: The tolerance is a part of each number that is wanted.
        name: What is compared, for the message.
        note: What else to say.
    """
    one, other = (np.asarray(numbers, np.float64) for numbers in (found, wanted))
    assert one.shape == other.shape, f"{name} has the shape {one.shape}, not {other.shape}"
    if not one.size:
        return
    apart, allowed = np.abs(one - other), within * np.abs(other) if relative else np.full(other.shape, within)
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(apart == 0, 0.0, apart / allowed)
    parts = np.where(np.isnan(parts), np.inf, parts)
    worst = int(parts.argmax())
    margin = Margin(*(float(numbers.flat[worst]) for numbers in (parts, apart, allowed)))
    margins.append(margin)
    place = f"{name}{[int(index) for index in np.unravel_index(worst, one.shape)]}" if one.ndim else name or "number"
    message = f"{place} is {one.flat[worst]:.9g}, not {other.flat[worst]:.9g}: they differ by {margin.difference:.2e}"
    assert margin.part <= 1, f"{message}, of which rounding explains {margin.tolerance:.2e}. {note}"


def rounding(roundings: float, size: float = 1.0, dtype: str = "float32") -> float:
    """How far apart two computations of a number of this size may be, with so many roundings after one another."""
    return HEADROOM * UNIT[dtype] * sqrt(roundings) * size


def logits(model: str, size: float = 1.0, dtype: str = "float32") -> float:
    """How far apart a model's outputs of this size may be: layer by layer, the roundings of its longest sum."""
    return rounding(LAYERS[model] * (SUMS[model] if dtype in ("float32", "float64") else 1), size, dtype)


def in_training(config: RunConfig, *, steps: int = 0, parts: int = 1, dtype: str = "") -> float:
    """How far apart the losses of two trainings may be that make the same steps.

    A loss is a mean over examples, which are rounded independently: √examples less than one of them. Convolutions
    gain nothing by that, since their gradients are sums over the whole batch. With e for the part of a loss and of a
    gradient that this rounding is, a loss is off by

    - e × loss, by its own sums;
    - e × loss again, by the steps before it: an error of the part e of each gradient makes of what steps have changed
      e more or less, and they have not changed more than there was. This holds where steps do not overshoot.

    Adam divides each gradient by its own size, and makes a whole step, this way or that, of one that is rounding
    alone. That is the part e of all weights, so that the weights are off by 2 × rate × √e of their number's root, and
    losses by 2 × rate × √(e × steps) × |gradient|.

    In 16 bits products are added up in 32: only each layer's results are rounded.

    Args:
        config: Of both.
        steps: If not `max_steps`.
        parts: Of the batch, whose losses are compared one by one.
        dtype: If not `precision`.
    """
    model = config.model if config.model in LAYERS else "mlp"
    dtype = dtype or config.precision
    wide = dtype in ("float32", "float64")
    roundings = 2 * LAYERS[model] * (SUMS[model] if wide else 1)
    examples = config.global_batch_size / parts * (config.context if model == "gpt-small" else 1)
    if wide and model not in ("mlp", "gpt-small"):
        examples = 1
    part = UNIT[dtype] * sqrt(roundings / examples)
    off = 2 * part * LOSS.get(model, 2.5)
    if config.optimizer != "sgd":
        norm = min(NORM, config.gradient_clip or NORM)
        off += 2 * config.learning_rate * sqrt(part * (steps or config.max_steps or 1)) * norm
    return HEADROOM * off
