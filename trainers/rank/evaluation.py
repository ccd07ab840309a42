"""What an evaluation sums up over the labels of the test set, in any framework, and what follows from it.

An image has one label; a window of text has one for each of its bytes, and each counts here as an example does.

The sums are one vector, so that one all-reduce or one copy to the host is enough: float64
[1 + figures + classes · columns + 4 · examples], made of

- the summed loss;
- the sum of each further figure: the metrics of a user's own, see `tuiapp.trainers.sources.own_loss`;
- how often an example of each class was predicted as each class, row by row: the confusion matrix; with more than
  `MOST_COLUMNS` classes only how often it was predicted right, and wrong;
- for some examples with a high loss: the loss, the example's number in the test set, its class, and the predicted one.
  Rows of zeros are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.contract.events import WorstExample
from tuiapp.trainers.contract.media import Content, encode_png, to_pixels
from tuiapp.trainers.sources.datasets import test_images

Sums: TypeAlias = npt.NDArray[np.float64]

EVAL_BATCH = 1024
"""Examples of one label that are evaluated at a time."""
EVAL_VALUES = EVAL_BATCH * 32 * 32 * 3
"""Numbers of images that are evaluated at a time, unless a step has more."""
EVAL_LABELS = 8192
"""Labels of texts that are evaluated at a time."""
MOST_COLUMNS = 100
WORST = 10
"""Examples with the highest loss that are kept."""


class Evaluation(NamedTuple):
    loss: float
    """Mean over the examples."""
    accuracy: float
    examples: int
    counts: list[list[int]]
    """int [classes, columns]"""
    worst: list[WorstExample]
    """Examples by loss, the highest first."""
    figures: dict[str, float]
    """Means of the further figures over the examples."""


def batch_size(plan: Plan, devices: int = 1) -> int:
    """Returns how many examples so many devices evaluate at a time: of large images as many as they train on.

    An evaluation, which keeps nothing for a backward pass, then takes no more memory than a step.
    """
    if plan.data.labels != 1:
        return max(1, EVAL_LABELS // plan.data.labels)
    config = plan.config
    trained = config.global_batch_size // (config.devices * config.accumulate)
    return min(EVAL_BATCH, devices * max(trained, EVAL_VALUES // prod(plan.data.input_shape), 1))


def columns(classes: int) -> int:
    """Returns the columns of the table of predictions: one per class, or right and wrong."""
    return classes if classes <= MOST_COLUMNS else 2


def evaluation_of(sums: Sums, classes: int, figures: Sequence[str] = ()) -> Evaluation:
    """Reads the vector; float64 [1 + figures + classes · columns + 4 · n]."""
    width, first = columns(classes), 1 + len(figures)
    end = first + classes * width
    counts = sums[first:end].reshape(classes, width).astype(np.int64)
    right = counts.trace() if width == classes else counts[:, 0].sum()
    examples = counts.sum()
    rows = sums[end:].reshape(-1, 4)
    rows = rows[np.isfinite(rows[:, 0]) & (rows[:, 0] > 0)]
    rows = rows[np.lexsort((rows[:, 1], -rows[:, 0]))][:WORST]
    worst = [WorstExample(int(number), int(label), int(guess), float(loss)) for loss, number, label, guess in rows]
    loss, *means = (float(total / examples) for total in sums[:first])
    named = dict(zip(figures, means, strict=True))
    return Evaluation(loss, float(right / examples), int(examples), counts.tolist(), worst, named)


def sum_up(logits: npt.NDArray[np.float32], labels: npt.NDArray[np.int64]) -> Sums:
    """Sums over the test set from its logits, [N, classes], on the host."""
    examples, classes = logits.shape
    width = columns(classes)
    rows, wide = np.arange(examples), logits.astype(np.float64)
    above = wide - wide.max(axis=1, keepdims=True)
    losses = np.log(np.exp(above).sum(axis=1)) - above[rows, labels]
    predicted = wide.argmax(axis=1)
    places = predicted if width == classes else predicted != labels
    counts = np.bincount(labels * width + places, minlength=classes * width)
    hardest = np.argsort(-losses, kind="stable")[:WORST]
    worst = np.stack([losses[hardest], hardest, labels[hardest], predicted[hardest]], axis=1)
    return np.concatenate([[losses.sum()], counts, worst.ravel()])


def pictures_of(worst: Sequence[WorstExample], names: Sequence[str]) -> list[Content]:
    """Returns the images of examples, as far as this process has them. Raises OSError."""
    images = test_images([example.number for example in worst])
    if images is None:
        return []
    name_of = dict(enumerate(names))
    contents: list[Content] = []
    for image, example in zip(images, worst, strict=True):
        label, predicted = (name_of.get(number, number) for number in (example.label, example.predicted))
        caption = f"{example.number}: {label}, taken for {predicted}"
        contents.append(("image", encode_png(to_pixels(image)), caption))
    return contents
