"""The facts of an .npz from its directory, the arrays' headers and the labels; no image is read.

The file has four arrays. x_train and x_test are images, [N, H, W] or [N, H, W, C]: uint8 from 0 to 255, or floats,
which are used unscaled. y_train and y_test are their labels, integers [N] or [N, 1], counted from 0.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from trainers.config.dataset_error import DatasetError
from trainers.config.npz_file import Header, NpzFile, open_npz, reason

ARRAYS = ("x_train", "y_train", "x_test", "y_test")

MAX_CLASSES = 1 << 16
"""A greater label is a mistake, and a model for that many classes would be mostly output layer."""


@dataclass(frozen=True, slots=True)
class NpzFacts:
    train_examples: int
    test_examples: int
    input_shape: tuple[int, int, int]
    """Height, width, channels."""
    classes: int
    """One more than the greatest label, of training and test."""
    value_bytes: int
    """Per number of an image in memory: 1 for uint8, 4 for floats, which become float32."""
    checksum: str
    """The CRC-32 of each array, from the archive's directory: 8 hex digits each."""


def npz_path(text: str) -> Path:
    """Expands `~`, and resolves against the working directory."""
    return Path(os.path.expanduser(text)).absolute()


def read_facts(path: Path) -> NpzFacts:
    """Reads the facts, cached while the file is unchanged; raises DatasetError if it is no valid data set."""
    try:
        found = path.stat()
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path} cannot be read: {reason(error)}.") from error
    if not stat.S_ISREG(found.st_mode):
        raise DatasetError(f"{path} is not a file.")
    return _read(path, found.st_mtime_ns, found.st_size)


def check_images(path: Path) -> None:
    """Reads and discards all images; raises DatasetError if some are damaged, or not finite."""
    with open_npz(path) as file:
        for name in ("x_train", "x_test"):
            for _ in file.images(name):
                pass


@lru_cache(maxsize=64)
def _read(path: Path, _mtime_ns: int, _size: int) -> NpzFacts:
    with open_npz(path) as file:
        _check_members(path, file.members)
        headers = {name: file.header(name) for name in ARRAYS}
        _check_headers(path, headers)
        checksum = file.checksum(ARRAYS)
        classes = 1 + max(_greatest_label(path, file, name) for name in ("y_train", "y_test"))
    train, test = headers["x_train"], headers["x_test"]
    value_bytes = 1 if train.dtype.name == "uint8" else 4
    return NpzFacts(train.shape[0], test.shape[0], _image_shape(train), classes, value_bytes, checksum)


def _check_members(path: Path, members: list[str]) -> None:
    arrays = {name.removesuffix(".npy") for name in members if name.endswith(".npy")}
    if missing := [name for name in ARRAYS if name not in arrays]:
        has = ", ".join(sorted(arrays)[:8]) or "nothing"
        raise DatasetError(f"{path} has no array {missing[0]}; it has {has}, and needs {', '.join(ARRAYS)}.")
    # numpy.load takes the one without .npy, and of two of one name the last.
    if twice := [name for name in ARRAYS if members.count(name) + members.count(f"{name}.npy") > 1]:
        raise DatasetError(f"{path} has {twice[0]} twice, with and without .npy; save it again with only one.")


def _check_headers(path: Path, headers: dict[str, Header]) -> None:
    for header in headers.values():
        if not header.shape or min(header.shape) < 1:
            raise DatasetError(f"{path}: {header}; it must not be empty.")
    for part in ("train", "test"):
        images, labels = headers[f"x_{part}"], headers[f"y_{part}"]
        if len(images.shape) not in (3, 4):
            raise DatasetError(f"{path}: {images}; images must be [N, H, W] or [N, H, W, C].")
        if images.dtype.kind != "f" and images.dtype.name != "uint8":
            raise DatasetError(f"{path}: {images}; images must be uint8 from 0 to 255, or floats.")
        if labels.dtype.kind not in "iu":
            raise DatasetError(f"{path}: {labels}; labels must be integers.")
        if labels.shape[1:] not in ((), (1,)):
            raise DatasetError(f"{path}: {labels}; labels must be [N] or [N, 1], one class number for each image.")
        if images.shape[0] != labels.shape[0]:
            raise DatasetError(f"{path}: {images} and {labels}; there must be one label for each image.")
    train, test = headers["x_train"], headers["x_test"]
    if _image_shape(train) != _image_shape(test):
        raise DatasetError(f"{path}: {train} and {test}; both must have images of the same size.")
    if (train.dtype.kind == "f") != (test.dtype.kind == "f"):
        raise DatasetError(f"{path}: {train} and {test}; either both are uint8 from 0 to 255 or both are floats.")


def _image_shape(header: Header) -> tuple[int, int, int]:
    height, width, *channels = header.shape[1:]
    return height, width, channels[0] if channels else 1


def _greatest_label(path: Path, file: NpzFile, name: str) -> int:
    extremes = [(int(block.min()), int(block.max())) for block in file.blocks(name)]
    least, greatest = min(low for low, _ in extremes), max(high for _, high in extremes)
    if least < 0:
        raise DatasetError(f"{path}: {name} has the label {least}; labels count from 0.")
    if greatest >= MAX_CLASSES:
        raise DatasetError(f"{path}: {name} has the label {greatest:,}; it must be below {MAX_CLASSES:,}.")
    return greatest
