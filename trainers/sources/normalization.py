"""Mean and standard deviation of the channels of training data."""

from __future__ import annotations

from math import sqrt

import msgspec
import numpy as np
import numpy.typing as npt

from tuiapp.trainers.config.data_files import DatasetError
from tuiapp.trainers.config.normalization import DATA, Normalization
from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.sources.arrays import Images, StoredImages
from tuiapp.trainers.sources.datasets import open_planned

MOST = 65_536
"""Images of the training set that are measured, evenly spaced: reading all of a larger one would delay every start."""

AT_ONCE = 256


def normalized(plan: Plan) -> Plan:
    """The plan with the numbers that are to be taken from its training data; raises DatasetError."""
    if plan.config.normalize != DATA or plan.normalization is not None:
        return plan
    return msgspec.structs.replace(plan, normalization=measure(open_planned(plan).x_train))


def measure(images: Images | StoredImages) -> Normalization:
    """Measures images [N, H, W, C]: means and population deviations, 1 for a channel that is the same everywhere.

    Nine digits: what sums in another order differ in is not in them, so every rank and backend has the same.
    """
    rows = np.unique(np.linspace(0, len(images) - 1, min(len(images), MOST)).round().astype(np.int64))
    blocks = [rows[start : start + AT_ONCE] for start in range(0, len(rows), AT_ONCE)]
    found = (_of_bytes if images.dtype == np.uint8 else _of_floats)(images, blocks)
    mean, std = (tuple(float(f"{value:.9g}") for value in each) for each in found)
    if not np.isfinite([*mean, *std]).all():
        raise DatasetError("the training images have values that are not finite: they have no mean to normalize by.")
    return Normalization(mean, tuple(value or 1.0 for value in std))


def _of_bytes(images: Images | StoredImages, blocks: list[npt.NDArray[np.int64]]) -> tuple[list[float], list[float]]:
    """Exact: in integers."""
    channels = images.shape[3]
    counts = np.zeros((channels, 256), np.int64)
    for rows in blocks:
        block = images[rows]
        for channel in range(channels):
            counts[channel] += np.bincount(block[..., channel].ravel(), minlength=256)
    means, stds = [], []
    for row in counts.tolist():
        count = sum(row)
        total = sum(value * times for value, times in enumerate(row))
        squares = sum(value * value * times for value, times in enumerate(row))
        means.append(total / count / 255)
        stds.append(sqrt(count * squares - total * total) / count / 255)
    return means, stds


def _of_floats(images: Images | StoredImages, blocks: list[npt.NDArray[np.int64]]) -> tuple[list[float], list[float]]:
    """In two passes, of float64."""
    channels, axes = images.shape[3], (0, 1, 2)
    count = sum(map(len, blocks)) * images.shape[1] * images.shape[2]
    total, squares = np.zeros(channels), np.zeros(channels)
    for rows in blocks:
        total += images[rows].sum(axes, np.float64)
    mean = total / count
    for rows in blocks:
        squares += np.square(images[rows] - mean).sum(axes, np.float64)
    return mean.tolist(), np.sqrt(squares / count).tolist()
