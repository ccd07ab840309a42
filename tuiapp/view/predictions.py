"""What the model of a run predicts for each class, and writes, as of its last evaluation."""

from __future__ import annotations

from typing import NamedTuple

from tuiapp.trainers.contract.events import Predictions
from tuiapp.trainers.state.text import sanitize


class ClassAccuracy(NamedTuple):
    name: str
    examples: int
    right: int

    @property
    def accuracy(self) -> float | None:
        """From 0 to 1; None without examples."""
        return self.right / self.examples if self.examples else None


class Confusion(NamedTuple):
    """Examples of one class that were predicted as another."""

    label: str
    predicted: str
    examples: int
    share: float
    """The share of the class's examples."""


def class_name(found: Predictions, label: int) -> str:
    """Returns the name of a class, or its number."""
    return sanitize(found.names[label], 40) if 0 <= label < len(found.names) else str(label)


def is_matrix(found: Predictions) -> bool:
    """Whether `counts` has a column for each class."""
    return all(len(row) == len(found.counts) for row in found.counts)


def by_class(found: Predictions) -> list[ClassAccuracy]:
    """Returns the accuracies of the classes, in their order."""
    matrix = is_matrix(found)
    return [
        ClassAccuracy(class_name(found, label), sum(row), row[label if matrix else 0] if row else 0)
        for label, row in enumerate(found.counts)
    ]


def confusions(found: Predictions) -> list[Confusion]:
    """Pairs of classes that were taken for each other, the most frequent first; none without a matrix."""
    if not is_matrix(found):
        return []
    pairs = [
        Confusion(class_name(found, label), class_name(found, index), count, count / sum(row))
        for label, row in enumerate(found.counts)
        for index, count in enumerate(row)
        if index != label and count > 0
    ]
    return sorted(pairs, key=lambda pair: -pair.examples)


def predictions_facts(found: Predictions | None) -> dict[str, object] | None:
    """Returns them ready for JSON; None before the first evaluation."""
    if found is None:
        return None
    return {
        "step": found.step,
        "classes": [
            {"label": label, "name": one.name, "examples": one.examples, "accuracy": one.accuracy}
            for label, one in enumerate(by_class(found))
        ],
        "confusion": found.counts if is_matrix(found) else None,
        "worst": [
            {"example": one.number, "label": one.label, "predicted": one.predicted, "loss": one.loss}
            for one in found.worst
        ],
        "samples": found.samples,
    }
