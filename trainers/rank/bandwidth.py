"""Measures all-reduces of growing size, whichever framework makes them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import monotonic

from tuiapp.trainers.contract.bandwidth import Answer, Begins, LeftOut, Measured
from tuiapp.trainers.contract.lines import encode_line

SIZES = tuple(1024 * 4**power for power in range(11))
"""Bytes on each device: 1 KiB to 1 GiB."""
EACH_S = 0.5
"""How long each size is repeated."""
MOST_CALLS = 1000


def measure(
    library: str,
    time_of: Callable[[int, int], float],
    tell: Callable[[Answer], None],
    most_bytes: int,
    seconds: float,
) -> None:
    """Measures one size after the other, as far as memory and time allow.

    `time_of` takes bytes and calls, makes so many all-reduces of an array of so many bytes on each device, and returns
    how long they took on the slowest: every process that takes part decides alike.
    """
    spent, once = 0.0, 0.0
    for size in SIZES:
        # Four times as much as the size before: once to warm up, once to find out how often, and then half a second.
        coming = 8 * once + max(EACH_S, 4 * once)
        if size > most_bytes:
            tell(LeftOut(bytes=size, why="it does not fit into the memory that is free"))
            return
        if spent + coming > seconds:
            tell(LeftOut(bytes=size, why=f"it would take more than the {seconds:g} s that all may take"))
            return
        tell(Begins(library=library, bytes=size))
        first, once = time_of(size, 1), time_of(size, 1)
        calls = max(1, min(MOST_CALLS, int(EACH_S / once) if once else MOST_CALLS))
        took = time_of(size, calls)
        spent += first + once + took
        tell(Measured(bytes=size, calls=calls, seconds=took / calls))


def teller(rank: int) -> Callable[[Answer], None]:
    """Writes what the first rank says to stdout; others say nothing."""

    def tell(answer: Answer) -> None:
        if rank == 0:
            sys.stdout.buffer.write(encode_line(answer))
            sys.stdout.buffer.flush()

    return tell


def clock(make: Callable[[], object], finish: Callable[[], object]) -> float:
    """Seconds that `make` takes until `finish` returns, which waits for what a device still does."""
    finish()
    began = monotonic()
    make()
    finish()
    return monotonic() - began
