"""The user's own data set in Python: `py:FILE:NAME` returns (x_train, y_train, x_test, y_test)."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from trainers.config.dataset_error import DatasetError
from trainers.config.datasets import CHECKED_BYTES, Dataset
from trainers.config.npz import ARRAYS, MAX_CLASSES
from trainers.data.arrays import Labels, StoredArrays
from trainers.data.stored import StoredImages
from trainers.user_code import call

SAMPLED = 64
"""Images of a large data set that its checksum is made of."""


def examine(value: str) -> Dataset:
    """The facts; raises DatasetError if what is returned is no data set, and what the user's code raises."""
    arrays = read(value)
    x_train, x_test = arrays.x_train, arrays.x_test
    labels = np.concatenate([arrays.y_train, arrays.y_test])
    height, width, channels = x_train.shape[1:]
    checksum = 0
    for images in (x_train, x_test):
        for block in _blocks(images):
            checksum = zlib.crc32(np.ascontiguousarray(block).data, checksum)
            if block.dtype != np.uint8 and not np.isfinite(block).all():
                raise DatasetError(f"{value} returns images that are not finite; replace such values.")
    return Dataset(
        value,
        f"{len(x_train):,} training images of {value}",
        len(x_train),
        len(x_test),
        (height, width, channels),
        1 + int(labels.max()),
        x_train.dtype.itemsize,
        f"{checksum:08x}{zlib.crc32(labels.data):08x}",
        mapped=x_train.is_mapped and x_test.is_mapped,
    )


def load(facts: Dataset) -> StoredArrays:
    """The arrays in a rank; raises DatasetError if they are others than at the launch."""
    arrays = read(facts.name)
    shapes = (facts.train_examples, *facts.input_shape), (facts.test_examples, *facts.input_shape)
    labels = np.concatenate([arrays.y_train, arrays.y_test])
    if (arrays.x_train.shape, arrays.x_test.shape) != shapes or labels.max() >= facts.classes:
        raise DatasetError(f"{facts.name} returned other arrays when the run was launched; start it again.")
    return arrays


def read(value: str) -> StoredArrays:
    """Calls the user's code and checks shapes and types."""
    result = call(value)
    if not isinstance(result, tuple | list) or len(result) != len(ARRAYS):
        found = f"{len(result)} values" if isinstance(result, tuple | list) else f"a {type(result).__name__}"
        raise DatasetError(f"{value} returned {found}; it must return {', '.join(ARRAYS)}.")
    for name, array in zip(ARRAYS, result, strict=True):
        if not isinstance(array, np.ndarray):
            raise DatasetError(f"{value}: {name} is a {type(array).__name__}; it must be a NumPy array or memory map.")
        _check(value, name, array)
    x_train, y_train, x_test, y_test = result
    y_train, y_test = _labels(value, "y_train", y_train), _labels(value, "y_test", y_test)
    for part, x, y in (("train", x_train, y_train), ("test", x_test, y_test)):
        if len(x) != len(y):
            raise DatasetError(f"{value}: x_{part} has {len(x):,} images, y_{part} {len(y):,} labels.")
    arrays = StoredArrays(StoredImages(x_train), y_train, StoredImages(x_test), y_test)
    train, test = arrays.x_train, arrays.x_test
    if train.shape[1:] != test.shape[1:] or train.dtype != test.dtype:
        told = f"x_train is {x_train.dtype} {list(x_train.shape)}, x_test {x_test.dtype} {list(x_test.shape)}"
        raise DatasetError(f"{value}: {told}; the images of both must have one size and one type.")
    return arrays


def _check(value: str, name: str, array: npt.NDArray[Any]) -> None:
    told = f"{value}: {name} is {array.dtype} {list(array.shape)}"
    if not array.size:
        raise DatasetError(f"{told}; it must not be empty.")
    if name.startswith("x"):
        if array.ndim not in (3, 4):
            raise DatasetError(f"{told}; images must be [N, H, W] or [N, H, W, C].")
        if array.dtype.kind != "f" and array.dtype != np.uint8:
            raise DatasetError(f"{told}; images must be uint8 from 0 to 255, or floats.")
    elif array.dtype.kind not in "iu" or array.shape[1:] not in ((), (1,)):
        raise DatasetError(f"{told}; labels must be integers [N] or [N, 1].")


def _labels(value: str, name: str, array: npt.NDArray[Any]) -> Labels:
    least, greatest = int(array.min()), int(array.max())
    if least < 0 or greatest >= MAX_CLASSES:
        wrong = least if least < 0 else greatest
        raise DatasetError(f"{value}: {name} has the label {wrong:,}; labels count from 0, below {MAX_CLASSES:,}.")
    return array.reshape(-1).astype(np.int64)


def _blocks(images: StoredImages) -> list[npt.NDArray[Any]]:
    if images.nbytes > CHECKED_BYTES:
        return [images[np.linspace(0, len(images) - 1, SAMPLED).astype(np.int64)]]
    return [images[start : start + 1024] for start in range(0, len(images), 1024)]
