"""The facts about a text: its length, from which its examples follow. They are windows of its bytes.

The last tenth is the test part. A window's label at each byte is the byte after it. Windows follow each other without
overlap, so an epoch passes over each byte once; what fills no window at the end of a part is left out.
"""

from __future__ import annotations

import hashlib
import stat
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from tuiapp.trainers.config.data_files import DatasetError

TEXT = "text:"
TEST_PART = 10
"""One of so many parts is the test part."""
CONTEXT = 128


class TextFacts(NamedTuple):
    bytes: int
    checksum: str


def read_facts(path: Path) -> TextFacts:
    """Reads the facts, cached while the file is unchanged; raises DatasetError if it cannot be read."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise DatasetError(f"{path} is not a file.")
        return _read(path, found.st_mtime_ns, found.st_size)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise DatasetError(f"{path} cannot be read: {reason}.") from error


@lru_cache(maxsize=64)
def _read(path: Path, _mtime_ns: int, _size: int) -> TextFacts:
    with path.open("rb") as file:
        return TextFacts(_size, hashlib.file_digest(file, "sha256").hexdigest()[:32])


def parts(text_bytes: int) -> tuple[int, int]:
    """The bytes of the training and the test part."""
    test = text_bytes // TEST_PART
    return text_bytes - test, test


def windows(part_bytes: int, context: int) -> int:
    """How many windows a part has, each with the byte after it."""
    return max(0, part_bytes - 1) // context


def least_bytes(context: int) -> int:
    """Returns the least bytes of a text with a window in each part."""
    return TEST_PART * (context + 1)
