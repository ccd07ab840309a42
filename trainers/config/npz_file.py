"""Reads the arrays of an .npz block by block, one block in memory at a time. Nothing is unpickled."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal
from zipfile import BadZipFile, ZipFile

from trainers.config.dataset_error import DatasetError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

BLOCK_BYTES = 1 << 20
"""A multiple of every number's size."""

# What the standard library raises for a damaged, encrypted or oddly compressed archive.
_UNREADABLE = (OSError, EOFError, ValueError, RuntimeError, NotImplementedError, BadZipFile, zlib.error)


@dataclass(frozen=True, slots=True)
class Header:
    name: str
    shape: tuple[int, ...]
    order: Literal["C", "F"]
    """F: the first index changes fastest in the file."""
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        return f"{self.name} is {self.dtype} {list(self.shape)}"


class NpzFile:
    def __init__(self, path: Path, archive: ZipFile) -> None:
        self._path, self._archive = path, archive
        self.members = archive.namelist()

    def header(self, name: str) -> Header:
        """Reads an array's header; raises DatasetError if it is damaged, or not of numbers."""
        with self._open(name) as (header, _):
            return header

    def checksum(self, names: Iterable[str]) -> str:
        """The CRC-32 of arrays from the archive's directory: 8 hex digits each."""
        return "".join(f"{self._archive.getinfo(f'{name}.npy').CRC:08x}" for name in names)

    def blocks(self, name: str) -> Iterator[npt.NDArray[Any]]:
        """Reads an array's numbers in file order; raises DatasetError if damaged, for a wrong checksum at the end."""
        import numpy as np

        with self._open(name) as (header, file):
            while data := file.read(BLOCK_BYTES):
                yield np.frombuffer(data, header.dtype)

    def images(self, name: str) -> Iterator[npt.NDArray[np.uint8 | np.float32]]:
        """Reads images as uint8, or as finite float32; raises DatasetError for damaged or non-finite numbers."""
        import numpy as np

        header, done = self.header(name), 0
        for block in self.blocks(name):
            if header.dtype == np.uint8:
                yield block
                continue
            with np.errstate(over="ignore"):
                floats = block.astype(np.float32, copy=False)
            if not (finite := np.isfinite(floats)).all():
                wrong = int(finite.argmin())
                place = [int(index) for index in np.unravel_index(done + wrong, header.shape, header.order)]
                raise DatasetError(
                    f"{self._path}: {name}{place} is {block[wrong]}; images must be finite float32 numbers. "
                    "Replace such values (numpy.nan_to_num), or remove these images."
                )
            done += block.size
            yield floats

    @contextmanager
    def _open(self, name: str) -> Iterator[tuple[Header, IO[bytes]]]:
        try:
            with self._archive.open(f"{name}.npy") as file:
                yield self._read_header(name, file), file
        except _UNREADABLE as error:
            raise DatasetError(
                f"{self._path}: {name} cannot be read: {reason(error)}. Save or copy the file again."
            ) from error

    def _read_header(self, name: str, file: IO[bytes]) -> Header:
        # Saves 60 ms until the dashboard's first picture.
        from numpy.lib import format as npy

        try:
            version = npy.read_magic(file)
            read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, fortran_order, dtype = read(file)
        except ValueError as error:
            raise DatasetError(f"{self._path}: {name} is not a NumPy array: {reason(error)}.") from error
        header = Header(name, shape, "F" if fortran_order else "C", dtype)
        if dtype.hasobject:
            raise DatasetError(f"{self._path}: {header}; only arrays of numbers are read, never Python objects.")
        promised = prod(shape) * dtype.itemsize
        if promised != (held := self._archive.getinfo(f"{name}.npy").file_size - file.tell()):
            raise DatasetError(f"{self._path}: {header}, which takes {promised:,} bytes, but the file holds {held:,}.")
        return header


@contextmanager
def open_npz(path: Path) -> Iterator[NpzFile]:
    """Opens an .npz; raises DatasetError if it cannot be read, or is none."""
    try:
        archive = ZipFile(path)
    except BadZipFile as error:
        raise DatasetError(f"{path} is not an .npz file, or is damaged: {reason(error)}.") from error
    except _UNREADABLE as error:
        raise DatasetError(f"{path} cannot be read: {reason(error)}.") from error
    with archive:
        yield NpzFile(path, archive)


def reason(error: Exception) -> str:
    """The system's or the library's message, on one line."""
    words = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
    return " ".join(words.split()).rstrip(".")[:200]
