"""MNIST, Fashion-MNIST and CIFAR-10 from their publishers' files. Nothing is unpickled, nothing unpacked to disk."""

from __future__ import annotations

import gzip
import struct
import tarfile
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tuiapp.trainers.config.data_files import FILES, DatasetError
from tuiapp.trainers.config.datasets import DATASETS
from tuiapp.trainers.sources.arrays import Arrays, Images, Labels
from tuiapp.trainers.sources.downloads import fetch

CIFAR_BATCHES = 5


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
    each = facts.train_examples // CIFAR_BATCHES
    wanted = {f"cifar-10-batches-bin/data_batch_{number}.bin": each for number in range(1, CIFAR_BATCHES + 1)}
    wanted["cifar-10-batches-bin/test_batch.bin"] = facts.test_examples
    parts = _read_cifar(path, wanted)
    *train, test = (parts[name] for name in wanted)
    x, y = zip(*train, strict=True)
    return Arrays(np.concatenate(x), np.concatenate(y), *test)


def _read_cifar(path: Path, wanted: dict[str, int]) -> dict[str, tuple[Images, Labels]]:
    """Images and labels of the archive's members `wanted`, by name and number of examples.

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
