"""The tasks, a row each: what an evaluation reports, what runs are best by, and what is shown.

Models, data and backends name the tasks that they are for. Every task gives classes to its labels, and is trained on
their cross entropy: an image has one label, a window of text has one for each of its bytes. A language model's
evaluation adds its perplexity and some text that it writes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

VOCABULARY = 256
"""Tokens are bytes: any file is text, and none has to be learnt from before another."""

Predict: TypeAlias = "Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.float32]]"
"""From tokens, [n, context], to the logits of the token after each, [n, context, vocabulary]."""

PROMPT = b"\n"
SAMPLES = 2
WRITTEN = 128
"""Bytes that a sample has at most: each costs a pass over a whole window, for which all ranks wait."""
TEMPERATURE = 0.8


@dataclass(frozen=True, slots=True)
class Task:
    name: str
    """What it is about, in a sentence: "… trains on …"."""
    figure: str
    """What is charted beside the loss."""
    figures: Callable[[float, float], dict[str, float]]
    """What an evaluation reports beside its loss, from the mean loss and the share of the labels that are right."""
    best_by: tuple[str, ...]
    """The values of the key `best` that it has, the first of them in place of others."""
    samples: Callable[[Predict, int, int], list[str]] | None = None
    """Shows what the model makes of itself, given its input's length and a seed; None: nothing."""
    labels: str = ""
    """What the labels of an example are called; "" if it has one."""


def _perplexity(loss: float) -> float:
    """Returns the perplexity of a mean loss in nats per token; infinite where no float holds it."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def samples(predict: Predict, context: int, seed: int) -> list[str]:
    """Returns texts that a model writes from a line's beginning, at most a window long.

    The draws depend on the seed alone (by Gumbel noise on the logits), so that evaluations, and backends, differ by
    their models. Bytes that are no UTF-8 are replaced.
    """
    # Imported here: whoever lists the tasks needs no arrays.
    import numpy as np

    length = min(context, WRITTEN)
    noise = np.random.Generator(np.random.PCG64([seed])).gumbel(size=(length, SAMPLES, VOCABULARY))
    tokens = np.zeros((SAMPLES, context), np.uint8)
    tokens[:, : len(PROMPT)] = np.frombuffer(PROMPT, np.uint8)
    for position in range(len(PROMPT), length):
        # What comes later in the window does not count: attention is causal.
        logits = predict(tokens)[:, position - 1].astype(np.float64)
        tokens[:, position] = (logits / TEMPERATURE + noise[position]).argmax(axis=1)
    return [row[len(PROMPT) : length].tobytes().decode(errors="replace") for row in tokens]


IMAGES = Task(
    "images",
    figure="accuracy",
    figures=lambda loss, right: {"accuracy": right},
    best_by=("accuracy", "loss"),
)
TEXT = Task(
    "text",
    figure="perplexity",
    figures=lambda loss, right: {"perplexity": _perplexity(loss)},
    best_by=("loss",),
    samples=samples,
    labels="tokens",
)

TASKS = {task.name: task for task in (IMAGES, TEXT)}
