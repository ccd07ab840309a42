"""A data set of one's own: npz:PATH. What the file must hold is said, and mostly checked, in `npz_facts`."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from trainers.config.datasets import NPZ, Dataset, find_dataset
from trainers.config.npz import DatasetError, npz_path
from trainers.data.arrays import Arrays, DataError, Images


def load(name: str) -> Arrays:
    """Load npz:PATH.

    Raises:
        DataError: the file is missing, damaged or not what a data set must be, or it is no longer the one with which
            the run was started.
    """
    path = npz_path(name.removeprefix(NPZ))
    try:
        facts = find_dataset(name)
        with np.load(path, allow_pickle=False) as stored:
            arrays = Arrays(
                _images(path, "x_train", stored["x_train"]),
                stored["y_train"].reshape(-1).astype(np.int64),
                _images(path, "x_test", stored["x_test"]),
                stored["y_test"].reshape(-1).astype(np.int64),
            )
    except DatasetError as error:
        raise DataError(str(error)) from error
    except (OSError, EOFError, ValueError, KeyError, RuntimeError, BadZipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged: {error}.") from error
    _check_unchanged(path, arrays, facts)
    return arrays


def _images(path: Path, name: str, stored: npt.NDArray[Any]) -> Images:
    """The images as [N, H, W, C], any float as float32."""
    images: Images = stored if stored.dtype == np.uint8 else stored.astype(np.float32)
    if images.dtype != np.uint8 and not np.isfinite(images).all():
        place = [int(number) for number in np.argwhere(~np.isfinite(images))[0]]
        raise DataError(f"{path}: {name}{place} is {stored[tuple(place)]}; images must be finite float32 numbers.")
    return np.ascontiguousarray(images if images.ndim == 4 else images[..., np.newaxis])


def _check_unchanged(path: Path, arrays: Arrays, facts: Dataset) -> None:
    """Compare with what the run, and every other rank, stands on."""
    for images, labels, examples in (
        (arrays.x_train, arrays.y_train, facts.train_examples),
        (arrays.x_test, arrays.y_test, facts.test_examples),
    ):
        as_found = images.shape == (examples, *facts.input_shape) and labels.shape == (examples,)
        if not as_found or labels.min() < 0 or labels.max() >= facts.classes:
            raise DataError(f"{path} was changed while the run was starting; start it again.")
