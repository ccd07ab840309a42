"""Data sets as NumPy arrays, the order in which every backend sees them, and what their inputs are normalized by.

The same seed gives the same global batches in the same order on every backend, so that their curves can be compared.
"""

from __future__ import annotations

import gzip
import struct
import tarfile
import zlib
from collections.abc import Callable, Iterator
from math import sqrt
from pathlib import Path
from typing import Any, TypeAlias
from zipfile import BadZipFile

import msgspec
import numpy as np
import numpy.typing as npt

from tuiapp.trainers.config.data_files import FILES, DatasetError
from tuiapp.trainers.config.datasets import DATASETS, Dataset, is_examined, source_of
from tuiapp.trainers.config.normalization import DATA, Normalization
from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.sources import text
from tuiapp.trainers.sources.arrays import Arrays, Images, Labels, StoredArrays, StoredImages
from tuiapp.trainers.sources.downloads import fetch
from tuiapp.trainers.sources.prepare import module_of, open_stored, prepare

__all__ = [
    "Arrays",
    "Images",
    "Labels",
    "Rows",
    "StoredArrays",
    "epoch_order",
    "load",
    "numbered_batches",
    "open_planned",
    "part",
    "remaining",
    "test_images",
]

Rows: TypeAlias = npt.NDArray[np.int64]
"""Numbers of examples in the training set, int64 [N]."""

DIGITS_FILE = Path(__file__).with_name("digits.npz")
SHAKESPEARE_FILE = Path(__file__).with_name("shakespeare.txt")

CIFAR_BATCHES = 5

SHOWN_BYTES = 256 << 20
"""A larger test set is not kept in memory to show some of it."""

MOST = 65_536
"""Images of the training set that are measured, evenly spaced: reading all of a larger one would delay every start."""

AT_ONCE = 256

_opened: Images | StoredImages | None = None
"""The images of the test set that this process has opened last."""


def open_planned(plan: Plan) -> Arrays | StoredArrays:
    """Loads the data set of a run, or opens it if the plan has its images read batch by batch; raises DatasetError."""
    global _opened
    arrays = _open(plan)
    is_at_hand = isinstance(arrays, StoredArrays) or arrays.x_test.nbytes <= SHOWN_BYTES
    _opened = arrays.x_test if is_at_hand and arrays.x_test.shape[3:] in ((1,), (3,), (4,)) else None
    return arrays


def _open(plan: Plan) -> Arrays | StoredArrays:
    prepare(plan.data)
    if not plan.streamed:
        return load(plan.data)
    if is_examined(plan.data.name):
        return open_stored(plan.data)
    arrays = load(plan.data)
    return StoredArrays(StoredImages(arrays.x_train), arrays.y_train, StoredImages(arrays.x_test), arrays.y_test)


def test_images(numbers: list[int]) -> Images | None:
    """Returns some of the test set that this process has opened; None if they are not at hand. Raises OSError."""
    return None if _opened is None else _opened[np.array(numbers, np.int64)]


def load(data: Dataset) -> Arrays:
    """Loads a data set, downloading what is missing; raises DatasetError if a file is damaged or unavailable."""
    name = data.name
    if is_examined(name):
        return open_stored(data).resident()
    if source_of(name) is not None:
        arrays: Arrays = module_of(name).load(data)
        return arrays
    loaders: dict[str, Callable[[], Arrays]] = {
        "digits": _load_digits,
        "cifar10": load_cifar10,
        "shakespeare": lambda: text.read(SHAKESPEARE_FILE, data),
    }
    return loaders[name]() if name in loaders else load_idx(name)


def part(images: Images | StoredImages, rows: slice) -> Images | StoredImages:
    """Returns some of the images; stored ones are not read."""
    return images.part(rows) if isinstance(images, StoredImages) else images[rows]


def epoch_order(
    examples: int, global_batch_size: int, seed: int, epoch: int, *, shuffle: bool = True
) -> npt.NDArray[np.int64]:
    """Returns an epoch's example numbers, int64 [steps, global_batch_size]; epochs count from 1, no remainder is used.

    Without `shuffle` they ascend, and the remainder is the same in every epoch.
    With per-device batch b, the device at position d along the batch axis takes columns d·b to (d+1)·b.
    """
    random = np.random.Generator(np.random.PCG64([seed, epoch]))
    order = random.permutation(examples) if shuffle else np.arange(examples)
    steps = examples // global_batch_size
    return order[: steps * global_batch_size].reshape(steps, global_batch_size)


def remaining(plan: Plan, epoch: int, after: int = 0) -> tuple[int, npt.NDArray[np.int64]]:
    """Returns the first step of an epoch beyond `after`, and the examples of its global batch and the following ones.

    Steps and epochs are counted from 1 over the whole run; none are beyond its end. The examples are int64 [steps,
    global_batch_size].
    """
    config, before = plan.config, (epoch - 1) * plan.steps_per_epoch
    first = max(before, after) + 1
    examples = plan.data.train_examples
    order = epoch_order(examples, config.global_batch_size, config.seed, epoch, shuffle=config.shuffle)
    return first, order[first - 1 - before : plan.total_steps - before]


def numbered_batches(
    images: Images | StoredImages, labels: Labels, batch_size: int, part: slice
) -> Iterator[tuple[Images, Labels, npt.NDArray[np.int32]]]:
    """Iterates over examples in batches of one size, in which each example counts once.

    `part` are the wanted positions of each batch.

    Yields:
        Images [size of the part, H, W, C], labels int64 [size], or windows of text and theirs, and the examples'
        numbers, int32 [size]: −1 for the zeros that fill up the last batch.
    """
    size = part.stop - part.start
    for start in range(part.start, part.start + len(images), batch_size):
        rows = slice(start, start + size)
        missing = min(size, max(0, start + size - len(images)))
        numbers = np.arange(start, start + size - missing, dtype=np.int32)
        x, y = (_filled_up(array[rows], missing) for array in (images, labels))
        yield x, y, np.pad(numbers, (0, missing), constant_values=-1)


def _filled_up(array: npt.NDArray[Any], missing: int) -> npt.NDArray[Any]:
    """Returns an array with so many rows of zeros at its end."""
    return np.pad(array, ((0, missing), *[(0, 0)] * (array.ndim - 1)))


def _load_digits() -> Arrays:
    try:
        with np.load(DIGITS_FILE, allow_pickle=False) as stored:
            x_train, x_test = _enlarge_digits(stored["x_train"]), _enlarge_digits(stored["x_test"])
            return Arrays(x_train, stored["y_train"].astype(np.int64), x_test, stored["y_test"].astype(np.int64))
    except (OSError, EOFError, ValueError, KeyError, BadZipFile, zlib.error) as error:
        raise DatasetError(
            f"{DIGITS_FILE} cannot be read: {error}. It ships with tuiapp: if it is missing or damaged, install tuiapp "
            "again."
        ) from error


def _enlarge_digits(small: npt.NDArray[np.uint8]) -> Images:
    """Enlarges images from [N, 8, 8] of 0–16 to [N, 28, 28, 1] with 0–255: each pixel 3×3, and a border of 2."""
    bright = np.round(small.astype(np.float32) * (255 / 16)).astype(np.uint8)
    large = bright.repeat(3, axis=1).repeat(3, axis=2)
    return np.pad(large, ((0, 0), (2, 2), (2, 2)))[..., np.newaxis]


def load_idx(name: str) -> Arrays:
    """Loads a data set in MNIST's format; raises DatasetError if a file is damaged or cannot be downloaded."""
    facts = DATASETS[name]
    height, width, _ = facts.input_shape
    x_train, y_train, x_test, y_test = (fetch(name, file) for file in FILES[name])
    return Arrays(
        read_idx(x_train, (facts.train_examples, height, width))[..., np.newaxis],
        read_idx(y_train, (facts.train_examples,)).astype(np.int64),
        read_idx(x_test, (facts.test_examples, height, width))[..., np.newaxis],
        read_idx(y_test, (facts.test_examples,)).astype(np.int64),
    )


def read_idx(path: Path, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """Reads a file of bytes in the IDX format, gzipped or not; raises DatasetError if damaged or of another shape.

    The format: two zeros, 8 for bytes, the number of axes, the axes' sizes as big-endian 32-bit numbers, the bytes.
    """
    header = bytes((0, 0, 8, len(shape))) + struct.pack(f">{len(shape)}I", *shape)
    size = len(header) + int(np.prod(shape))
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read(size + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{path} is damaged: {error}.") from error
    if len(data) != size or not data.startswith(header):
        raise DatasetError(f"{path} is damaged: it does not hold bytes of the shape {list(shape)}.")
    # A copy, because arrays on bytes are read-only, and PyTorch warns of such arrays.
    return np.frombuffer(data, np.uint8, offset=len(header)).reshape(shape).copy()


def load_cifar10() -> Arrays:
    """Loads CIFAR-10 from its "binary version"; raises DatasetError if it is damaged or cannot be downloaded."""
    facts = DATASETS["cifar10"]
    (file,) = FILES["cifar10"]
    path = fetch("cifar10", file)
    batch_examples = facts.train_examples // CIFAR_BATCHES
    wanted = {f"cifar-10-batches-bin/data_batch_{number}.bin": batch_examples for number in range(1, CIFAR_BATCHES + 1)}
    wanted["cifar-10-batches-bin/test_batch.bin"] = facts.test_examples
    parts = _read_cifar(path, wanted)
    *train, test = (parts[name] for name in wanted)
    x, y = zip(*train, strict=True)
    return Arrays(np.concatenate(x), np.concatenate(y), *test)


def _read_cifar(path: Path, wanted: dict[str, int]) -> dict[str, tuple[Images, Labels]]:
    """Reads images and labels of the archive's members `wanted`, by name and number of examples.

    An example is its label, a byte, and its 32×32 reds, greens and blues, in this order.
    """
    height, width, channels = DATASETS["cifar10"].input_shape
    record = 1 + height * width * channels
    parts: dict[str, tuple[Images, Labels]] = {}
    try:
        # In the archive's order: going back would unpack everything again.
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                if member.name not in wanted or (file := archive.extractfile(member)) is None:
                    continue
                data = file.read(wanted[member.name] * record + 1)
                rows = np.frombuffer(data, np.uint8).reshape(wanted[member.name], record)
                images = rows[:, 1:].reshape(-1, channels, height, width).transpose(0, 2, 3, 1)
                parts[member.name] = np.ascontiguousarray(images), rows[:, 0].astype(np.int64)
    except (OSError, EOFError, ValueError, KeyError, tarfile.TarError, zlib.error) as error:
        raise DatasetError(f"{path} is damaged: {error}.") from error
    if missing := wanted.keys() - parts.keys():
        raise DatasetError(f"{path} is damaged: it has no {min(missing)}.")
    return parts


def normalized(plan: Plan) -> Plan:
    """Returns the plan with the numbers that are to be taken from its training data; raises DatasetError."""
    if plan.config.normalize != DATA or plan.normalization is not None:
        return plan
    return msgspec.structs.replace(plan, normalization=measure(open_planned(plan).x_train))


def measure(images: Images | StoredImages) -> Normalization:
    """Measures images [N, H, W, C]: means and population deviations, 1 for a channel that is the same everywhere.

    Nine digits: what sums in another order differ in is not in them, so every rank and backend has the same.
    """
    rows = np.unique(np.linspace(0, len(images) - 1, min(len(images), MOST)).round().astype(np.int64))
    blocks = [rows[start : start + AT_ONCE] for start in range(0, len(rows), AT_ONCE)]
    statistics = (_of_bytes if images.dtype == np.uint8 else _of_floats)(images, blocks)
    mean, std = (tuple(float(f"{value:.9g}") for value in values) for values in statistics)
    if not np.isfinite([*mean, *std]).all():
        raise DatasetError("the training images have values that are not finite: they have no mean to normalize by.")
    return Normalization(mean, tuple(value or 1.0 for value in std))


def _of_bytes(images: Images | StoredImages, blocks: list[npt.NDArray[np.int64]]) -> tuple[list[float], list[float]]:
    """Measures uint8 images exactly, in integers."""
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
    """Measures float images in two passes, in float64."""
    channels, axes = images.shape[3], (0, 1, 2)
    count = sum(map(len, blocks)) * images.shape[1] * images.shape[2]
    total, squares = np.zeros(channels), np.zeros(channels)
    for rows in blocks:
        total += images[rows].sum(axes, np.float64)
    mean = total / count
    for rows in blocks:
        squares += np.square(images[rows] - mean).sum(axes, np.float64)
    return mean.tolist(), np.sqrt(squares / count).tolist()
