"""The user's own arrays: what they must be, and the facts of an .npz that holds them.

There are four. x_train and x_test are images, [N, H, W] or [N, H, W, C]: uint8 from 0 to 255, or floats, which are used
unscaled. y_train and y_test are their labels, integers [N] or [N, 1], counted from 0.

The facts come from the archive's directory, the arrays' headers and the labels. Nothing is unpickled.
"""

from __future__ import annotations

import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import IO, TYPE_CHECKING, Any, Literal
from zipfile import BadZipFile, ZipFile

from tuiapp.trainers.config.data_files import DatasetError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

ARRAYS = ("x_train", "y_train", "x_test", "y_test")

BLOCK_BYTES = 1 << 20
"""A multiple of every number's size."""

MAX_CLASSES = 1 << 16
"""A greater label is a mistake, and a model for that many classes would be mostly output layer."""

# What the standard library raises for a damaged, encrypted or oddly compressed archive.
_UNREADABLE = (OSError, EOFError, ValueError, RuntimeError, NotImplementedError, BadZipFile, zlib.error)


@dataclass(frozen=True, slots=True)
class Header:
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        return f"{self.name} is {self.dtype} {list(self.shape)}"


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


class NpzFile:
    def __init__(self, path: Path, archive: ZipFile) -> None:
        self._path, self._archive = path, archive
        self.members = archive.namelist()

    def header(self, name: str) -> Header:
        """Reads an array's header; raises DatasetError if it is damaged, or not of numbers."""
        with self._open(name) as file:
            return self._read_header(name, file)[0]

    def checksum(self, names: Iterable[str]) -> str:
        """Returns the CRC-32 of arrays from the archive's directory: 8 hex digits each."""
        return "".join(f"{self._archive.getinfo(f'{name}.npy').CRC:08x}" for name in names)

    def read(self, name: str) -> npt.NDArray[Any]:
        """Reads an array; raises DatasetError if it is damaged."""
        from numpy.lib import format as npy

        with self._open(name) as file:
            array: npt.NDArray[Any] = npy.read_array(file, allow_pickle=False)
            return array

    def images(self, name: str) -> npt.NDArray[np.uint8 | np.float32]:
        """Reads images as uint8, or as finite float32; raises DatasetError for damaged or non-finite numbers."""
        import numpy as np

        with self._open(name) as file:
            header, order = self._read_header(name, file)
            # By blocks in place: a file of float64 is in memory only as float32, which is what a launch counts with.
            kind: type[np.uint8 | np.float32] = np.uint8 if header.dtype == np.uint8 else np.float32
            images: npt.NDArray[np.uint8 | np.float32] = np.empty(prod(header.shape), kind)
            done = 0
            while data := file.read(BLOCK_BYTES):
                block = np.frombuffer(data, header.dtype)
                kept = images[done : done + block.size]
                with np.errstate(over="ignore"):
                    kept[:] = block
                if not (finite := np.isfinite(kept)).all():
                    wrong = int(finite.argmin())
                    position = [int(index) for index in np.unravel_index(done + wrong, header.shape, order)]
                    raise DatasetError(
                        f"{self._path}: {name}{position} is {block[wrong]}; images must be finite float32 numbers. "
                        "Replace such values (numpy.nan_to_num), or remove these images."
                    )
                done += block.size
        return images.reshape(header.shape, order=order)

    def _read_header(self, name: str, file: IO[bytes]) -> tuple[Header, Literal["C", "F"]]:
        """Reads an array's header, and the order of its numbers; F: the first index changes fastest."""
        # Saves 60 ms until the dashboard's first picture.
        from numpy.lib import format as npy

        try:
            version = npy.read_magic(file)
            read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, fortran, dtype = read(file)
        except (ValueError, TokenError) as error:
            raise DatasetError(f"{self._path}: {name} is not a NumPy array: {_reason(error)}.") from error
        header = Header(name, shape, dtype)
        if dtype.hasobject:
            raise DatasetError(f"{self._path}: {header}; only arrays of numbers are read, never Python objects.")
        promised = prod(shape) * dtype.itemsize
        held = self._archive.getinfo(f"{name}.npy").file_size - file.tell()
        if promised != held:
            raise DatasetError(f"{self._path}: {header}, which takes {promised:,} bytes, but the file holds {held:,}.")
        return header, "F" if fortran else "C"

    @contextmanager
    def _open(self, name: str) -> Iterator[IO[bytes]]:
        try:
            with self._archive.open(f"{name}.npy") as file:
                yield file
        except _UNREADABLE as error:
            raise DatasetError(
                f"{self._path}: {name} cannot be read: {_reason(error)}. Save or copy the file again."
            ) from error


@contextmanager
def open_npz(path: Path) -> Iterator[NpzFile]:
    """Opens an .npz; raises DatasetError if it cannot be read, or is none."""
    try:
        archive = ZipFile(path)
    except BadZipFile as error:
        raise DatasetError(f"{path} is not an .npz file, or is damaged: {_reason(error)}.") from error
    except _UNREADABLE as error:
        raise DatasetError(f"{path} cannot be read: {_reason(error)}.") from error
    with archive:
        yield NpzFile(path, archive)


def read_facts(path: Path) -> NpzFacts:
    """Reads the facts, cached while the file is unchanged; raises DatasetError if it is no valid data set."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path} cannot be read: {_reason(error)}.") from error
    if not stat.S_ISREG(status.st_mode):
        raise DatasetError(f"{path} is not a file.")
    return _read(path, status.st_mtime_ns, status.st_size)


def check_images(path: Path) -> None:
    """Reads and discards all images; raises DatasetError if some are damaged, or not finite."""
    with open_npz(path) as file:
        for name in ("x_train", "x_test"):
            file.images(name)


@lru_cache(maxsize=64)
def _read(path: Path, _mtime_ns: int, _size: int) -> NpzFacts:
    with open_npz(path) as file:
        arrays = {name.removesuffix(".npy") for name in file.members if name.endswith(".npy")}
        if missing := [name for name in ARRAYS if name not in arrays]:
            has = ", ".join(sorted(arrays)[:8]) or "nothing"
            raise DatasetError(f"{path} has no array {missing[0]}; it has {has}, and needs {', '.join(ARRAYS)}.")
        headers = {name: file.header(name) for name in ARRAYS}
        check_headers(str(path), headers)
        checksum = file.checksum(ARRAYS)
        classes = 1 + max(greatest_label(str(path), name, file.read(name)) for name in ("y_train", "y_test"))
    train, test = headers["x_train"], headers["x_test"]
    value_bytes = 1 if train.dtype.name == "uint8" else 4
    return NpzFacts(train.shape[0], test.shape[0], _image_shape(train), classes, value_bytes, checksum)


def check_headers(source: str, headers: dict[str, Header]) -> None:
    """Checks the shapes and types of the four arrays; raises DatasetError."""
    for header in headers.values():
        if not header.shape or min(header.shape) < 1:
            raise DatasetError(f"{source}: {header}; it must not be empty.")
    for part in ("train", "test"):
        images, labels = headers[f"x_{part}"], headers[f"y_{part}"]
        if len(images.shape) not in (3, 4):
            raise DatasetError(f"{source}: {images}; images must be [N, H, W] or [N, H, W, C].")
        if images.dtype.kind != "f" and images.dtype.name != "uint8":
            raise DatasetError(f"{source}: {images}; images must be uint8 from 0 to 255, or floats.")
        if labels.dtype.kind not in "iu":
            raise DatasetError(f"{source}: {labels}; labels must be integers.")
        if labels.shape[1:] not in ((), (1,)):
            raise DatasetError(f"{source}: {labels}; labels must be [N] or [N, 1], one class number for each image.")
        if images.shape[0] != labels.shape[0]:
            raise DatasetError(f"{source}: {images} and {labels}; there must be one label for each image.")
    train, test = headers["x_train"], headers["x_test"]
    if _image_shape(train) != _image_shape(test):
        raise DatasetError(f"{source}: {train} and {test}; both must have images of the same size.")
    if (train.dtype.kind == "f") != (test.dtype.kind == "f"):
        raise DatasetError(f"{source}: {train} and {test}; either both are uint8 from 0 to 255 or both are floats.")


def _image_shape(header: Header) -> tuple[int, int, int]:
    height, width, *channels = header.shape[1:]
    return height, width, channels[0] if channels else 1


def greatest_label(source: str, name: str, labels: npt.NDArray[Any]) -> int:
    """Returns the greatest of some labels; raises DatasetError if one cannot be a class."""
    least, greatest = int(labels.min()), int(labels.max())
    if least < 0:
        raise DatasetError(f"{source}: {name} has the label {least}; labels count from 0.")
    if greatest >= MAX_CLASSES:
        raise DatasetError(f"{source}: {name} has the label {greatest:,}; it must be below {MAX_CLASSES:,}.")
    return greatest


def _reason(error: Exception) -> str:
    """Returns the system's or the library's message, on one line."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
    return " ".join(text.split()).rstrip(".")[:200]
