"""The user's own data set in Python: `py:FILE:NAME` returns (x_train, y_train, x_test, y_test)."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from tuiapp.trainers.config.data_files import DatasetError
from tuiapp.trainers.config.datasets import CHECKED_BYTES, Dataset
from tuiapp.trainers.config.npz import ARRAYS, Header, check_headers, greatest_label
from tuiapp.trainers.sources.arrays import Labels, StoredArrays, StoredImages
from tuiapp.trainers.sources.user_code import call

SAMPLED = 64
"""Images of a large data set that its checksum is made of."""


def examine(value: str, *_: int) -> Dataset:
    """Returns the facts; raises DatasetError if what is returned is no data set, and what the user's code raises.

    The size of images, and the seed, change nothing.
    """
    arrays = read(value)
    x_train, x_test = arrays.x_train, arrays.x_test
    labels = np.concatenate([arrays.y_train, arrays.y_test])
    height, width, channels = x_train.shape[1:]
    return Dataset(
        value,
        f"{len(x_train):,} training images of {value}",
        len(x_train),
        len(x_test),
        (height, width, channels),
        1 + int(labels.max()),
        x_train.dtype.itemsize,
        _checksum(value, arrays),
        mapped=x_train.is_mapped and x_test.is_mapped,
    )


def load(facts: Dataset) -> StoredArrays:
    """Returns the arrays in a rank; raises DatasetError if they are others than at the launch."""
    arrays = read(facts.name)
    if arrays.x_train.shape[1:] != facts.input_shape or _checksum(facts.name, arrays) != facts.checksum:
        raise DatasetError(
            f"{facts.name} did not return the arrays that it returned when the run was launched. "
            "All ranks must get the same: seed your random numbers."
        )
    return arrays


def read(value: str) -> StoredArrays:
    """Calls the user's code and checks shapes and types."""
    result = call(value)
    if not isinstance(result, tuple | list) or len(result) != len(ARRAYS):
        description = f"{len(result)} values" if isinstance(result, tuple | list) else f"a {type(result).__name__}"
        raise DatasetError(f"{value} returned {description}; it must return {', '.join(ARRAYS)}.")
    for name, array in zip(ARRAYS, result, strict=True):
        if not isinstance(array, np.ndarray):
            raise DatasetError(f"{value}: {name} is a {type(array).__name__}; it must be a NumPy array or memory map.")
    arrays = dict(zip(ARRAYS, result, strict=True))
    check_headers(value, {name: Header(name, array.shape, array.dtype) for name, array in arrays.items()})
    return StoredArrays(
        StoredImages(arrays["x_train"]),
        _labels(value, "y_train", arrays["y_train"]),
        StoredImages(arrays["x_test"]),
        _labels(value, "y_test", arrays["y_test"]),
    )


def _labels(value: str, name: str, array: npt.NDArray[Any]) -> Labels:
    greatest_label(value, name, array)
    return array.reshape(-1).astype(np.int64)


def _checksum(value: str, arrays: StoredArrays) -> str:
    """Returns a checksum of all numbers, or of some of many images; raises DatasetError if some are not finite."""
    checksum = zlib.crc32(np.concatenate([arrays.y_train, arrays.y_test]).data)
    for images in (arrays.x_train, arrays.x_test):
        checksum = zlib.crc32(str(images.shape).encode(), checksum)
        for block in _blocks(images):
            checksum = zlib.crc32(np.ascontiguousarray(block).data, checksum)
            if block.dtype != np.uint8 and not np.isfinite(block).all():
                raise DatasetError(f"{value} returns images that are not finite; replace such values.")
    return f"{checksum:08x}"


def _blocks(images: StoredImages) -> list[npt.NDArray[Any]]:
    if images.nbytes > CHECKED_BYTES:
        return [images[np.linspace(0, len(images) - 1, SAMPLED).astype(np.int64)]]
    return [images[start : start + 1024] for start in range(0, len(images), 1024)]
