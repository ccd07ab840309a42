"""A language model's evaluation: its perplexity, and text that it writes."""

from __future__ import annotations

import math
from collections.abc import Callable
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


def perplexity(loss: float) -> float:
    """Returns the perplexity of a mean loss in nats per token; infinite where no float holds it."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def samples(predict: Predict, context: int, seed: int) -> list[str]:
    """Texts that a model writes from a line's beginning, at most a window long.

    The draws depend on the seed alone (by Gumbel noise on the logits), so that evaluations, and backends, differ by
    their models. Bytes that are no UTF-8 are replaced.
    """
    # Imported here: whoever lists the tasks needs no arrays.
    import numpy as np

    length = min(context, WRITTEN)
    noise = np.random.Generator(np.random.PCG64([seed])).gumbel(size=(length, SAMPLES, VOCABULARY))
    tokens = np.zeros((SAMPLES, context), np.uint8)
    tokens[:, : len(PROMPT)] = np.frombuffer(PROMPT, np.uint8)
    for place in range(len(PROMPT), length):
        # What comes later in the window does not count: attention is causal.
        logits = predict(tokens)[:, place - 1].astype(np.float64)
        tokens[:, place] = (logits / TEMPERATURE + noise[place]).argmax(axis=1)
    return [row[len(PROMPT) : length].tobytes().decode(errors="replace") for row in tokens]
