"""What an .npz says of itself: read from its directory, the arrays' headers and the labels; no image is read.

The file has four arrays. x_train and x_test are images, [N, H, W] or [N, H, W, C]: uint8 from 0 to 255, or floats,
which are taken as they are. y_train and y_test are their labels, integers [N] or [N, 1], counted from 0. Nothing is
ever unpickled.
"""

from __future__ import annotations

import os
import stat
import zlib
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from zipfile import BadZipFile, ZipFile

if TYPE_CHECKING:
    import numpy as np

ARRAYS = ("x_train", "y_train", "x_test", "y_test")

MAX_CLASSES = 1 << 16
"""A greater label is a mistake, and a model for so many classes would be all output layer."""

MAX_SIDE = 1 << 13
"""Pixels in height or width, and channels, of one image."""

LABEL_BYTES = 1 << 20
"""Of labels held in memory at once; a multiple of every number's size."""

END_BYTES = (1 << 16) + 256
"""Where an archive's end record stands: after it comes a comment of at most 64 KiB."""

MAX_DIRECTORY_BYTES = 1 << 20
"""Of an archive's list of contents."""


class DatasetError(ValueError):
    """There is no such data set; the message names the file and says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class NpzFacts:
    """What is known of an .npz before its images are read."""

    train_examples: int
    test_examples: int
    input_shape: tuple[int, int, int]
    """Height, width, channels."""
    classes: int
    """One more than the greatest label, of training and test."""


@dataclass(frozen=True, slots=True)
class _Header:
    """What stands in front of an array."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        return f"{self.name} is {self.dtype} {list(self.shape)}"


def npz_path(text: str) -> Path:
    """The file that is meant: `~` is the home directory, what is relative stands in the working directory."""
    return Path(os.path.expanduser(text)).absolute()


def read_facts(path: Path) -> NpzFacts:
    """Read the facts; from memory when the file has not changed since the last time.

    Raises:
        DatasetError: it is missing, unreadable, no .npz, or its arrays are not what they must be.
    """
    try:
        found = path.stat()
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path} cannot be read: {_reason(error)}.") from error
    if not stat.S_ISREG(found.st_mode):
        raise DatasetError(f"{path} is no file.")
    return _read(path, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=64)
def _read(path: Path, _mtime_ns: int, _size: int) -> NpzFacts:
    try:
        _check_directory(path)
        with ZipFile(path) as archive:
            return _examine(path, archive)
    except BadZipFile as error:
        raise DatasetError(f"{path} is no .npz, or is damaged: {error}.") from error
    # What the standard library raises for a damaged, encrypted or oddly compressed member.
    except (OSError, EOFError, ValueError, RuntimeError, NotImplementedError, zlib.error) as error:
        if isinstance(error, DatasetError):
            raise
        raise DatasetError(f"{path} cannot be read: {_reason(error)}.") from error


def _examine(path: Path, archive: ZipFile) -> NpzFacts:
    there = {name.removesuffix(".npy") for name in archive.namelist()}
    if missing := [name for name in ARRAYS if name not in there]:
        has = ", ".join(sorted(there)[:8]) or "nothing"
        raise DatasetError(f"{path} has no array {missing[0]}; it has {has}, and needs {', '.join(ARRAYS)}.")
    headers = {name: _read_header(path, archive, name) for name in ARRAYS}
    for part in ("train", "test"):
        _check_images(path, headers[f"x_{part}"])
        _check_labels(path, headers[f"y_{part}"])
        images, labels = headers[f"x_{part}"], headers[f"y_{part}"]
        if images.shape[0] != labels.shape[0]:
            raise DatasetError(f"{path}: {images} and {labels}; there must be one label for each image.")
    train, test = headers["x_train"], headers["x_test"]
    if _image_shape(train) != _image_shape(test):
        raise DatasetError(f"{path}: {train} and {test}; the images of both must have one size.")
    if (train.dtype.kind == "f") != (test.dtype.kind == "f"):
        raise DatasetError(f"{path}: {train} and {test}; either both are uint8 from 0 to 255 or both are floats.")
    classes = 1 + max(_greatest_label(path, archive, f"y_{part}") for part in ("train", "test"))
    return NpzFacts(train.shape[0], test.shape[0], _image_shape(train), classes)


def _read_header(path: Path, archive: ZipFile, name: str) -> _Header:
    # 60 ms that the dashboard's first picture need not wait for.
    from numpy.lib import format as npy

    member = archive.getinfo(f"{name}.npy")
    with archive.open(member) as file:
        try:
            version = npy.read_magic(file)
            read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, _, dtype = read(file)
        except ValueError as error:
            raise DatasetError(f"{path}: {name} is no array that NumPy wrote: {_reason(error)}.") from error
        header = _Header(name, shape, dtype)
        if dtype.hasobject:
            raise DatasetError(f"{path}: {header}; Python objects are never read, only uint8, integers and floats.")
        if not shape or min(shape) < 1:
            raise DatasetError(f"{path}: {header}; it must not be empty.")
        if (promised := prod(shape) * dtype.itemsize) != (held := member.file_size - file.tell()):
            raise DatasetError(f"{path}: {header}, which takes {promised:,} bytes, but {held:,} are there: damaged.")
    return header


def _check_images(path: Path, header: _Header) -> None:
    if len(header.shape) not in (3, 4):
        raise DatasetError(f"{path}: {header}; images must be [N, H, W] or [N, H, W, C].")
    if header.dtype.kind != "f" and header.dtype.name != "uint8":
        raise DatasetError(f"{path}: {header}; images must be uint8 from 0 to 255, or floats.")
    if max(header.shape[1:]) > MAX_SIDE:
        raise DatasetError(f"{path}: {header}; an image may have {MAX_SIDE:,} pixels a side, and as many channels.")


def _check_labels(path: Path, header: _Header) -> None:
    if header.dtype.kind not in "iu":
        raise DatasetError(f"{path}: {header}; labels must be integers.")
    if len(header.shape) != 1 and (len(header.shape) != 2 or header.shape[1] != 1):
        raise DatasetError(f"{path}: {header}; labels must be [N] or [N, 1], one class number for each image.")


def _image_shape(header: _Header) -> tuple[int, int, int]:
    height, width, *channels = header.shape[1:]
    return height, width, channels[0] if channels else 1


def _greatest_label(path: Path, archive: ZipFile, name: str) -> int:
    least, greatest = _extremes(archive.open(f"{name}.npy"))
    if least < 0:
        raise DatasetError(f"{path}: {name} has the label {least}; labels count from 0.")
    if greatest >= MAX_CLASSES:
        raise DatasetError(f"{path}: {name} has the label {greatest:,}; it must be below {MAX_CLASSES:,}.")
    return greatest


def _extremes(file: IO[bytes]) -> tuple[int, int]:
    """The least and the greatest number of an array; read in parts, for it may be any size once it is unpacked."""
    import numpy as np
    from numpy.lib import format as npy

    with file:
        version = npy.read_magic(file)
        _, _, dtype = (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(file)
        least, greatest = [], []
        while data := file.read(LABEL_BYTES):
            # The numbers' sum of bytes was compared with the archive's directory before.
            numbers = np.frombuffer(data[: len(data) // dtype.itemsize * dtype.itemsize], dtype)
            least.append(int(numbers.min()))
            greatest.append(int(numbers.max()))
    return min(least), max(greatest)


def _check_directory(path: Path) -> None:
    """Refuse an archive whose list of contents alone is larger than any .npz's: it would be read whole."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - END_BYTES))
        tail = file.read(END_BYTES)
    place, place64 = tail.rfind(b"PK\5\6"), tail.rfind(b"PK\6\6")
    size = int.from_bytes(tail[place + 12 : place + 16], "little") if place >= 0 else 0
    if size == 0xFFFFFFFF and place64 >= 0:
        size = int.from_bytes(tail[place64 + 40 : place64 + 48], "little")
    if size > MAX_DIRECTORY_BYTES:
        raise DatasetError(f"{path} is no .npz: its list of contents would take {size:,} bytes.")


def _reason(error: Exception) -> str:
    """Why, in the system's or the library's words, on one line."""
    words = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
    return " ".join(words.split()).rstrip(".")[:200]
