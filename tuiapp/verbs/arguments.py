"""Parsers for the command line's options."""

from __future__ import annotations

import argparse
import importlib
import math
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from tuiapp.trainers.config.options import LEAST_INTERVAL_S, MOST_INTERVAL_S, read_number
from tuiapp.trainers.contract.sidecars import MOST_STEPS

MOST_DIGITS = 9
"""Most digits of a count."""


class Names(Collection[str]):
    """The names of a table's rows, which are imported when they are asked for: most commands start without them."""

    def __init__(self, module: str, table: str) -> None:
        self._module, self._table = module, table

    @property
    def _rows(self) -> Collection[str]:
        rows: Collection[str] = getattr(importlib.import_module(self._module), self._table)
        return rows

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def count(text: str) -> int:
    """Parses a count."""
    if not text.isascii() or not text.isdigit() or len(text) > MOST_DIGITS or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a count; use 1 to {10**MOST_DIGITS - 1:,}.")
    return int(text)


def profile_steps(text: str) -> int:
    """Parses a number of steps to profile."""
    if (steps := count(text)) > MOST_STEPS:
        raise argparse.ArgumentTypeError(f"{text!r} is too many steps for one trace; use at most {MOST_STEPS:,}.")
    return steps


def seconds(text: str) -> float:
    """Parses the seconds that something may take."""
    return _number(text, 1, 3600, "a number of seconds from {:g} to {:g}.")


def counts(text: str) -> list[int]:
    """Parses counts with commas between them; returns them in ascending order, each once."""
    return sorted({count(part.strip()) for part in text.split(",")})


def backends(text: str) -> list[str]:
    """Parses names of built-in backends with commas between them, each once."""
    # Imported where backends are compared.
    from tuiapp.trainers.config.catalog import BACKENDS
    from tuiapp.trainers.config.options import suggest

    builtin = [name for name, row in BACKENDS.items() if row.builtin]
    names = list(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in names:
        if name not in builtin:
            hint = suggest(name, builtin) or f" There are: {', '.join(builtin)}."
            raise argparse.ArgumentTypeError(f"{name!r} is not a backend.{hint}")
    return names


def port(text: str) -> int:
    """Parses a TCP port; 0 is any free one."""
    if not text.isascii() or not text.isdigit() or int(text[:9]) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; use 0 to 65535.")
    return int(text)


def interval(text: str) -> float:
    """Parses seconds between two samples."""
    return _number(text, LEAST_INTERVAL_S, MOST_INTERVAL_S, "a number of seconds from {:g} to {:g}.")


def speed(text: str) -> float:
    """Parses a speed factor: "4" or "4x"."""
    # Imported where a run is replayed.
    from tuiapp.feeds.feed import SPEEDS

    return _number(text, SPEEDS[0], SPEEDS[-1], "a speed; use {:g} to {:g}.", suffix="x")


def _number(text: str, least: float, most: float, wanted: str, suffix: str = "") -> float:
    try:
        number = read_number(text.removesuffix(suffix))
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not {wanted.format(least, most)}")
    return number


def directory(text: str) -> Path:
    """Returns an absolute path; a tilde is the home directory."""
    if not text:
        # `--runs-dir "$UNSET"` gives an empty path: it must not mean the current directory.
        raise argparse.ArgumentTypeError("it is empty; use . for the current directory.")
    return Path(os.path.expanduser(text)).absolute()
