"""What a script is told on its stderr."""

from __future__ import annotations

import sys
from contextlib import suppress


def say(text: str) -> None:
    """Prints a line, unless it cannot be written: the logs of a run may lie on a full disk."""
    with suppress(OSError, ValueError):
        print(f"tuiapp: {text}", file=sys.stderr)
