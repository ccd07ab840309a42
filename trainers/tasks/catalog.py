"""The tasks, a row each: what an evaluation reports, what runs are best by, and what is shown.

Models, data and backends name the tasks that they are for. Every task gives classes to its labels, and is trained on
their cross entropy: an image has one label, a window of text has one for each of its bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tuiapp.trainers.tasks import text


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
    samples: Callable[[text.Predict, int, int], list[str]] | None = None
    """Shows what the model makes of itself, given its input's length and a seed; None: nothing."""
    labels: str = ""
    """What the labels of an example are called; "" if it has one."""


IMAGES = Task(
    "images",
    figure="accuracy",
    figures=lambda loss, right: {"accuracy": right},
    best_by=("accuracy", "loss"),
)
TEXT = Task(
    "text",
    figure="perplexity",
    figures=lambda loss, right: {"perplexity": text.perplexity(loss)},
    best_by=("loss",),
    samples=text.samples,
    labels="tokens",
)

TASKS = {task.name: task for task in (IMAGES, TEXT)}
