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
    """Share of the class's examples."""


def class_name(predictions: Predictions, label: int) -> str:
    """Returns the name of a class, or its number."""
    return sanitize(predictions.names[label], 40) if 0 <= label < len(predictions.names) else str(label)


def is_matrix(predictions: Predictions) -> bool:
    """Whether `counts` has a column for each class."""
    return all(len(row) == len(predictions.counts) for row in predictions.counts)


def by_class(predictions: Predictions) -> list[ClassAccuracy]:
    """Returns the accuracies of the classes, in their order."""
    matrix = is_matrix(predictions)
    return [
        ClassAccuracy(class_name(predictions, label), sum(row), row[label if matrix else 0] if row else 0)
        for label, row in enumerate(predictions.counts)
    ]


def confusions(predictions: Predictions) -> list[Confusion]:
    """Returns pairs of classes that were taken for each other, the most frequent first; none without a matrix."""
    if not is_matrix(predictions):
        return []
    pairs = [
        Confusion(class_name(predictions, label), class_name(predictions, index), count, count / sum(row))
        for label, row in enumerate(predictions.counts)
        for index, count in enumerate(row)
        if index != label and count > 0
    ]
    return sorted(pairs, key=lambda pair: -pair.examples)


def predictions_facts(predictions: Predictions | None) -> dict[str, object] | None:
    """Returns predictions ready for JSON; None before the first evaluation."""
    if predictions is None:
        return None
    return {
        "step": predictions.step,
        "classes": [
            {"label": label, "name": of_class.name, "examples": of_class.examples, "accuracy": of_class.accuracy}
            for label, of_class in enumerate(by_class(predictions))
        ],
        "confusion": predictions.counts if is_matrix(predictions) else None,
        "worst": [
            {
                "example": example.number,
                "label": example.label,
                "predicted": example.predicted,
                "loss": example.loss,
            }
            for example in predictions.worst
        ],
        "samples": predictions.samples,
    }
