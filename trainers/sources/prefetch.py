"""Reads batches ahead of the step that wants them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Rows = TypeVar("Rows")
Batch = TypeVar("Batch")

THREADS = 2
AHEAD = 4
"""Batches read before they are wanted: the memory they take is all that the data set takes."""


def prefetch(batches: Iterable[Rows], read: Callable[[Rows], Batch]) -> Iterator[Batch]:
    """Yields what `read` makes of each batch, in order, read by other threads; raises what `read` raises."""
    waiting: deque[Future[Batch]] = deque()
    with ThreadPoolExecutor(THREADS, "prefetch") as pool:
        try:
            for rows in batches:
                waiting.append(pool.submit(read, rows))
                if len(waiting) > AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            # The run stops, or fails, in the middle of an epoch.
            for future in waiting:
                future.cancel()
