"""Completes a path while it is typed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from textual.suggester import Suggester

from tuiapp.trainers.config.user_code import PY, UserCodeError, read_names


class PathSuggester(Suggester):
    """Suggests the first path that completes the typed one, by the prefix before it.

    After "py:FILE:" it suggests a name that FILE defines.

    Args:
        suffixes: Prefix, which may be empty, → how the names of files end; "/" for directories only.
    """

    def __init__(self, suffixes: Mapping[str, str]) -> None:
        # Not cached: directories change.
        super().__init__(use_cache=False, case_sensitive=True)
        self._suffixes = suffixes

    async def get_suggestion(self, value: str) -> str | None:
        """Returns the whole completed value, or None."""
        for prefix, suffix in self._suffixes.items():
            if value.startswith(prefix):
                typed = value.removeprefix(prefix)
                # A directory may be on a server that does not answer.
                found = await asyncio.to_thread(complete, typed, suffix, prefix == PY)
                return f"{prefix}{found}" if found else None
        return None


def complete(typed: str, suffix: str, named: bool = False) -> str | None:
    """Returns the first completion in order: a directory, with a slash, or a file with the suffix.

    With `named`, after a file and a colon: the first name that it defines.
    """
    if named and f"{suffix}:" in typed:
        return _complete_name(*typed.rsplit(":", 1))
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


def _complete_name(file: str, start: str) -> str | None:
    try:
        names = read_names(Path(os.path.expanduser(file)).absolute())
    except UserCodeError:
        return None
    return next((f"{file}:{name}" for name in names if name.startswith(start) and name != "*"), None)
