"""Completes a path while it is typed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from textual.suggester import Suggester


class PathSuggester(Suggester):
    """Suggests the first directory, or file of the prefix's kind, that goes on as what is typed after a prefix.

    Args:
        prefixes: As "npz:", which suggests files that end in .npz.
    """

    def __init__(self, prefixes: Sequence[str]) -> None:
        # What a directory holds changes, and an answer of yesterday's is none.
        super().__init__(use_cache=False, case_sensitive=True)
        self._prefixes = prefixes

    async def get_suggestion(self, value: str) -> str | None:
        """The whole value, completed; None when there is nothing that goes on so."""
        for prefix in self._prefixes:
            if value.startswith(prefix):
                typed = value.removeprefix(prefix)
                # A directory may lie on a server that does not answer.
                found = await asyncio.to_thread(complete, typed, f".{prefix.rstrip(':')}")
                return f"{prefix}{found}" if found else None
        return None


def complete(typed: str, suffix: str) -> str | None:
    """The first name in order that goes on as typed: of a directory, with a slash, or of a file with the suffix."""
    directory, start = os.path.split(typed)
    if not typed or typed == "~":
        return None
    try:
        with os.scandir(os.path.expanduser(directory) or ".") as entries:
            names = sorted(
                f"{entry.name}/" if entry.is_dir() else entry.name
                for entry in entries
                if entry.name.startswith(start)
                and entry.name.isprintable()
                and (entry.is_dir() or entry.name.endswith(suffix))
                and (start or not entry.name.startswith("."))
            )
    except (OSError, ValueError):
        return None
    return os.path.join(directory, names[0]) if names else None
