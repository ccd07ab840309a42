"""What follows from an evaluation's sums."""

from __future__ import annotations

import numpy as np

from trainers.contract.events import WorstExample
from trainers.evaluation import MOST_COLUMNS, columns, evaluation_of


def test_a_confusion_matrix_and_the_worst_of_all_parts() -> None:
    counts = [[8, 2, 0], [0, 10, 0], [1, 1, 8]]
    nobody, broken = [0.0] * 4, [np.nan, 5, 1, 1]
    worst = [[0.5, 3, 0, 1], nobody, broken, [2.5, 9, 2, 0], [2.5, 4, 2, 1]]
    found = evaluation_of(np.array([6.0, *np.ravel(counts), *np.ravel(worst)]), 3)
    assert (found.loss, found.accuracy, found.examples) == (6 / 30, 26 / 30, 30)
    # A checkpoint's manifest takes no type of NumPy's.
    assert type(found.loss) is type(found.accuracy) is float
    assert found.counts == counts
    assert found.worst == [WorstExample(4, 2, 1, 2.5), WorstExample(9, 2, 0, 2.5), WorstExample(3, 0, 1, 0.5)]


def test_many_classes_are_counted_right_and_wrong() -> None:
    classes = MOST_COLUMNS + 1
    counts = np.tile([3, 1], (classes, 1))
    assert columns(classes) == 2
    found = evaluation_of(np.array([1.0, *counts.ravel()]), classes)
    assert (found.accuracy, found.examples) == (0.75, 4 * classes)
    assert found.counts == counts.tolist()
