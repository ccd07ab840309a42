"""Distinguishes a deleted directory from one that was renamed, or cannot be reached by its name."""

from __future__ import annotations

import os
from pathlib import Path


class HeldDirectory:
    def __init__(self, path: Path) -> None:
        self._fd = _open(path)

    def is_deleted(self) -> bool:
        """Whether it is known to be deleted; False if there was none."""
        if self._fd is None:
            return False
        try:
            return os.fstat(self._fd).st_nlink == 0
        except OSError:
            # A file server reports it so.
            return True

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _open(path: Path) -> int | None:
    try:
        return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
