"""How training images are changed, drawn anew in each epoch: the same on every backend and number of devices.

The host draws a few numbers for each example, from the seed, the epoch and the example's position in it alone; the
devices make the images. Draws go with the examples' numbers, in one structured array, through whatever splits those.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.sources.datasets import Rows

PAD = 4
"""Black pixels on each side of an image that is cropped, as He et al. 2016 (arXiv 1512.03385) do with CIFAR's."""

Order: TypeAlias = npt.NDArray[Any]
"""`Rows`, or what is drawn for them, too, structured: `example`, int64, and with

- flip: `flip`, bool, whether the image is mirrored left to right;
- crop-flip: `top` and `left` too, int8, where the window begins in the image with its `PAD`s;
- mixup: `partner`, int64, the example that it is mixed with, and `weight`, float32, its own share of the mixture.
"""


def with_draws(plan: Plan, epoch: int, first: int, order: Rows) -> Order:
    """Returns an epoch's examples from step `first` of the run on, [steps, global_batch_size], with their draws.

    Without augmentation the examples' numbers alone. Partners are of the same global batch, and each example of it is
    one's partner (Zhang et al. 2018, arXiv 1710.09412).
    """
    config = plan.config
    if config.augment == "off":
        return order
    shape = plan.steps_per_epoch, config.global_batch_size
    random = np.random.Generator(np.random.Philox([config.seed, epoch]))
    done = (first - 1) % plan.steps_per_epoch
    left = slice(done, done + len(order))
    drawn: dict[str, npt.NDArray[Any]] = {"example": order}
    if config.augment == "mixup":
        drawn["weight"] = random.beta(config.mixup_alpha, config.mixup_alpha, shape).astype(np.float32)[left]
        places = random.permuted(np.broadcast_to(np.arange(shape[1]), shape), axis=1)[left]
        drawn["partner"] = np.take_along_axis(order, places, axis=1)
    else:
        drawn["flip"] = random.random(shape)[left] < 0.5
    if config.augment == "crop-flip":
        drawn["top"], drawn["left"] = random.integers(0, 2 * PAD, (2, *shape), np.int8, endpoint=True)[:, left]
    structured = np.empty(order.shape, [(name, values.dtype) for name, values in drawn.items()])
    for name, values in drawn.items():
        structured[name] = values
    return structured


def examples(order: Order) -> Rows:
    """Returns the examples' numbers, int64 […]; with partners […, 2], the example and its partner."""
    if order.dtype.names is None:
        return order
    if "partner" in order.dtype.names:
        return np.stack([order["example"], order["partner"]], -1)
    return np.ascontiguousarray(order["example"])


def draws(order: Order) -> dict[str, npt.NDArray[Any]]:
    """Returns what is drawn for the examples, by its name: of mixtures the weights, whose partners are `examples`."""
    names = [name for name in order.dtype.names or () if name not in ("example", "partner")]
    return {name: np.ascontiguousarray(order[name]) for name in names}
