"""Small file systems of their own, which tests fill and give room again; mounted by root only."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Disk:
    """A file system that can be full."""

    path: Path
    why: str
    """What the kernel says when it is."""
    fill: Callable[[int], None]
    """Leaves so many bytes free."""
    make_room: Callable[[], None]


@contextmanager
def tmpfs(place: Path, size: str) -> Iterator[Path]:
    """A file system in memory.

    Args:
        place: Where it is mounted; made here.
        size: As `mount` takes it.
    """
    place.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={size},mode=0700", "tuiapp-test", str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@contextmanager
def small_disk(place: Path) -> Iterator[Disk]:
    """24 MiB in memory, filled by a file that lies in the way."""
    with tmpfs(place, "24m") as path:
        in_the_way = path / "in-the-way"

        def fill(left_bytes: int) -> None:
            # The run goes on writing meanwhile: whatever is free is taken, then some of it given back.
            with in_the_way.open("wb", buffering=0) as file:
                try:
                    while True:
                        file.write(bytes(1 << 16))
                except OSError:
                    file.truncate(max(0, file.tell() - left_bytes))

        yield Disk(path, "No space left on device", fill, in_the_way.unlink)


def _mount(*words: str) -> None:
    if (
        os.geteuid()
        or shutil.which("mount") is None
        or subprocess.run(["mount", *words], capture_output=True).returncode
    ):
        pytest.skip("a file system can be mounted by root only")
