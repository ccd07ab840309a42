"""The user's data set: npz:PATH. `tuiapp.trainers.config.npz` says what the file must hold and checks most of it."""

from __future__ import annotations

import numpy as np

from tuiapp.trainers.config.data_files import DatasetError
from tuiapp.trainers.config.datasets import NPZ, Dataset
from tuiapp.trainers.config.files import absolute
from tuiapp.trainers.config.npz import NpzFile, open_npz
from tuiapp.trainers.sources.arrays import Arrays, Images, Labels


def load(facts: Dataset) -> Arrays:
    """Loads npz:PATH; raises DatasetError if it is missing, invalid, or changed since the run was started."""
    path = absolute(facts.name.removeprefix(NPZ))
    with open_npz(path) as file:
        arrays = Arrays(*_read(file, "train"), *_read(file, "test"))
    for images, labels, examples in (
        (arrays.x_train, arrays.y_train, facts.train_examples),
        (arrays.x_test, arrays.y_test, facts.test_examples),
    ):
        as_found = images.shape == (examples, *facts.input_shape) and labels.shape == (examples,)
        if not as_found or labels.min() < 0 or labels.max() >= facts.classes:
            raise DatasetError(f"{path} was changed while the run was starting; start it again.")
    return arrays


def _read(file: NpzFile, part: str) -> tuple[Images, Labels]:
    images, labels = file.images(f"x_{part}"), file.read(f"y_{part}")
    images = images if images.ndim == 4 else images[..., np.newaxis]
    return np.ascontiguousarray(images), labels.reshape(-1).astype(np.int64)
