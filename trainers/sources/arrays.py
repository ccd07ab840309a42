"""A data set's arrays: in memory, or where they lie until a batch is wanted; their parts; batches read ahead."""

from __future__ import annotations

import mmap
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from math import prod
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from tuiapp.trainers.config.data_files import DatasetError
from tuiapp.trainers.config.datasets import Dataset

Images: TypeAlias = npt.NDArray[np.uint8 | np.float32]
"""[N, H, W, C]: uint8 from 0 to 255, which training scales to 0–1, or float32, used unscaled. Or `Tokens`."""
Tokens: TypeAlias = npt.NDArray[np.uint8]
"""Windows of text, uint8 [N, context]."""
Labels: TypeAlias = npt.NDArray[np.int64]
"""int64 [N]; of windows of text the byte after each of their bytes, uint8 [N, context]."""


@dataclass(frozen=True, slots=True)
class Arrays:
    x_train: Images
    y_train: Labels
    x_test: Images
    y_test: Labels


@dataclass(frozen=True, slots=True)
class StoredArrays:
    """A data set whose images are read when they are wanted."""

    x_train: StoredImages
    y_train: Labels
    x_test: StoredImages
    y_test: Labels

    def resident(self) -> Arrays:
        """Reads all of it into memory."""
        return Arrays(self.x_train[:], self.y_train, self.x_test[:], self.y_test)


class StoredImages:
    """Images of an array or a memory map, [N, H, W] or [N, H, W, C], read when indexed as uint8 or float32.

    A batch of a memory map is read from its file, not through the map: that neither counts the file as this process's
    memory nor keeps other threads from running meanwhile.
    """

    def __init__(self, source: npt.NDArray[Any], rows: npt.NDArray[np.int64] | None = None) -> None:
        self._source, self._rows = source, rows
        channels = source.shape[3:] or (1,)
        self.shape: tuple[int, ...] = (len(source if rows is None else rows), *source.shape[1:3], *channels)
        self.dtype: np.dtype[Any] = np.dtype(np.uint8 if source.dtype == np.uint8 else np.float32)
        self._fd = _open(source)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """In memory, if all were read."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def is_mapped(self) -> bool:
        return isinstance(self._source, np.memmap)

    def part(self, rows: slice | npt.NDArray[np.int64]) -> StoredImages:
        """Returns some of the images, none of them read."""
        mine = np.arange(len(self._source)) if self._rows is None else self._rows
        return StoredImages(self._source, mine[rows])

    def __getitem__(self, rows: slice | npt.NDArray[np.int64]) -> npt.NDArray[np.uint8 | np.float32]:
        """Reads images, [n, H, W, C]; raises OSError."""
        if self._rows is not None:
            rows = self._rows[rows]
        if self._fd is None:
            images = self._source[rows]
        else:
            wanted = self._numbers(rows)
            images = np.empty((len(wanted), *self._source.shape[1:]), self._source.dtype)
            self._read(wanted, images)
        return images.astype(self.dtype, copy=False).reshape(-1, *self.shape[1:])

    def read_into(self, rows: slice | npt.NDArray[np.int64], memory: npt.NDArray[Any]) -> None:
        """Reads images into contiguous memory, [n, H, W, C] of `dtype`: by one copy if they are stored in this type."""
        if self._source.dtype != self.dtype:
            memory[...] = self[rows]
            return
        if self._rows is not None:
            rows = self._rows[rows]
        target = memory.reshape(-1, *self._source.shape[1:])
        if self._fd is not None:
            self._read(self._numbers(rows), target)
        elif isinstance(rows, slice):
            target[...] = self._source[rows]
        else:
            # Any mode but "raise", the default, copies into the memory itself.
            np.take(self._source, rows, axis=0, out=target, mode="wrap")

    def _numbers(self, rows: slice | npt.NDArray[np.int64]) -> range | list[int]:
        return range(*rows.indices(len(self._source))) if isinstance(rows, slice) else rows.tolist()

    def _read(self, rows: range | list[int], target: npt.NDArray[Any]) -> None:
        source = self._source
        assert self._fd is not None
        row_bytes, begin = source[:1].nbytes, getattr(source, "offset", 0)
        memory = target.reshape(-1).view(np.uint8).data
        # All are asked for before the first is waited for: a disk serves many at once.
        for row in rows:
            os.posix_fadvise(self._fd, begin + row * row_bytes, row_bytes, os.POSIX_FADV_WILLNEED)
        for index, row in enumerate(rows):
            _read_fully(self._fd, memory[index * row_bytes : (index + 1) * row_bytes], begin + row * row_bytes)


def _open(source: npt.NDArray[Any]) -> int | None:
    """Returns a descriptor of a memory map's file; None for another array, or a part of a map: its place is unknown."""
    is_whole_map = isinstance(source, np.memmap) and isinstance(source.base, mmap.mmap) and source.flags.c_contiguous
    if not is_whole_map or not source.filename:  # type: ignore[attr-defined]
        return None
    fd = os.open(source.filename, os.O_RDONLY | os.O_CLOEXEC)  # type: ignore[attr-defined]
    # The order is random: what lies beside an image is not wanted next.
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    return fd


def _read_fully(fd: int, memory: memoryview, offset: int) -> None:
    while memory:
        count = os.preadv(fd, [memory], offset)
        if not count:
            raise OSError(f"the images' file ends before byte {offset:,}: it was cut while the run read it")
        memory, offset = memory[count:], offset + count


TEST_SHARE = 0.2


def split_examples(count: int) -> tuple[int, int]:
    """Returns the numbers of training and test examples, one at least of each; raises DatasetError for too few."""
    if count < 2:
        raise DatasetError("there must be two images at least, one of them to test with.")
    test = max(1, round(TEST_SHARE * count))
    return count - test, test


def split_rows(images: npt.NDArray[Any], labels: Labels, facts: Dataset) -> StoredArrays:
    """Returns the training and test part of images that lie in one file: by the seed, or those of training first."""
    stored = StoredImages(images)
    if facts.split_seed is None:
        rows = np.arange(len(labels))
    else:
        rows = np.random.Generator(np.random.PCG64([facts.split_seed])).permutation(len(labels))
    train, test = rows[: facts.train_examples], rows[facts.train_examples :]
    return StoredArrays(stored.part(train), labels[train], stored.part(test), labels[test])


Rows = TypeVar("Rows")
Batch = TypeVar("Batch")

THREADS = 2
AHEAD = 4
"""Batches read before they are wanted: the memory they take is all that the data set takes."""


def prefetch(batches: Iterable[Rows], read: Callable[[Rows], Batch]) -> Iterator[Batch]:
    """Yields what `read` makes of each batch, in order; raises what it raises. Other threads read from now on."""
    pool, rows = ThreadPoolExecutor(THREADS, "prefetch"), iter(batches)
    waiting = deque(pool.submit(read, batch) for batch in islice(rows, AHEAD))
    return _in_order(pool, waiting, rows, read)


def _in_order(
    pool: ThreadPoolExecutor, waiting: deque[Future[Batch]], batches: Iterator[Rows], read: Callable[[Rows], Batch]
) -> Iterator[Batch]:
    with pool:
        try:
            for rows in batches:
                waiting.append(pool.submit(read, rows))
                yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            # The run stops, or fails, in the middle of an epoch.
            for future in waiting:
                future.cancel()
