"""Splits images that come without a test part."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from trainers.config.dataset_error import DatasetError
from trainers.config.datasets import Dataset
from trainers.sources.arrays import Labels, StoredArrays
from trainers.sources.stored import StoredImages

TEST_SHARE = 0.2


def split_examples(count: int) -> tuple[int, int]:
    """The numbers of training and of test examples, one at least of each; raises DatasetError if there are fewer."""
    if count < 2:
        raise DatasetError("there must be two images at least, one of them to test with.")
    test = max(1, round(TEST_SHARE * count))
    return count - test, test


def split_rows(images: npt.NDArray[Any], labels: Labels, facts: Dataset) -> StoredArrays:
    """Training and test part of images that lie in one file: by the seed, or those of training first."""
    stored = StoredImages(images)
    if facts.split_seed is None:
        rows = np.arange(len(labels))
    else:
        rows = np.random.Generator(np.random.PCG64([facts.split_seed])).permutation(len(labels))
    train, test = rows[: facts.train_examples], rows[facts.train_examples :]
    return StoredArrays(stored.part(train), labels[train], stored.part(test), labels[test])
