"""The user's own data set: npz:PATH. `trainers.config.npz` says what the file must hold, and checks most of it."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np

from trainers.config.dataset_error import DatasetError
from trainers.config.datasets import NPZ, Dataset
from trainers.config.npz import npz_path
from trainers.config.npz_file import NpzFile, open_npz
from trainers.data.arrays import Arrays, Images, Labels


def load(facts: Dataset) -> Arrays:
    """Loads npz:PATH; raises DatasetError if it is missing, invalid, or changed since the run was started."""
    path = npz_path(facts.name.removeprefix(NPZ))
    with open_npz(path) as file:
        x_train, x_test = (_read_images(file, part) for part in ("x_train", "x_test"))
        y_train, y_test = (_read_labels(file, part) for part in ("y_train", "y_test"))
    arrays = Arrays(x_train, y_train, x_test, y_test)
    _check_unchanged(path, arrays, facts)
    return arrays


def _read_images(file: NpzFile, name: str) -> Images:
    """Reads [N, H, W, C], uint8 or float32, block by block in place, so that nothing is in memory twice."""
    header, done = file.header(name), 0
    numbers = np.empty(prod(header.shape), np.uint8 if header.dtype == np.uint8 else np.float32)
    for block in file.images(name):
        numbers[done : done + block.size] = block
        done += block.size
    images = numbers.reshape(header.shape, order=header.order)
    return np.ascontiguousarray(images if images.ndim == 4 else images[..., np.newaxis])


def _read_labels(file: NpzFile, name: str) -> Labels:
    return np.concatenate([block.astype(np.int64) for block in file.blocks(name)])


def _check_unchanged(path: Path, arrays: Arrays, facts: Dataset) -> None:
    for images, labels, examples in (
        (arrays.x_train, arrays.y_train, facts.train_examples),
        (arrays.x_test, arrays.y_test, facts.test_examples),
    ):
        as_found = images.shape == (examples, *facts.input_shape) and labels.shape == (examples,)
        if not as_found or labels.min() < 0 or labels.max() >= facts.classes:
            raise DatasetError(f"{path} was changed while the run was starting; start it again.")
