"""Lets processes print to a file on a disk that may be full: output is then dropped, and all else continues."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _DiskFullSafeFile(io.RawIOBase):
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        view = memoryview(data).cast("B")
        size, done = len(view), 0
        try:
            while done < size:
                done += os.write(self._fd, view[done:])
        except OSError:
            return size
        return size


def make_stdio_disk_full_safe() -> None:
    """Keeps `print` in this process from raising because of a full or failing disk."""
    for name, fd in (("stdout", 1), ("stderr", 2)):
        stream = io.TextIOWrapper(
            _DiskFullSafeFile(fd),  # type: ignore[type-var]  # a raw file will do, as with `python -u`
            encoding="utf-8",
            errors="backslashreplace",
            write_through=True,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def say(text: str) -> None:
    """Prints a line for a script's user on stderr, which stays the script's: dropped if it cannot be written."""
    with suppress(OSError, ValueError):
        print(f"tuiapp: {text}", file=sys.stderr)
