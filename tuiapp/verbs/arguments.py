"""Parsers for the command line's options."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterator
from pathlib import Path

from trainers.config.options import read_number


class RunColumns:
    """The columns of the list of runs; imported when they are asked for, or else every command would start later."""

    def __iter__(self) -> Iterator[str]:
        from tuiapp.view.run_list import COLUMNS

        return iter([column.name for column in COLUMNS])


def count(text: str) -> int:
    """Parses a count, 1 or more."""
    if not text.isascii() or not text.isdigit() or int(text[:9]) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a count; use 1 or more.")
    return int(text[:9])


def port(text: str) -> int:
    """Parses a TCP port; 0 is any free one."""
    if not text.isascii() or not text.isdigit() or int(text[:9]) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; use 0 to 65535.")
    return int(text)


def interval(text: str) -> float:
    """Parses seconds between two samples."""
    return _number(text, 0.25, 3600, f"{text!r} is not a number of seconds from 0.25 to 3600.")


def speed(text: str) -> float:
    """Parses a speed factor: "4" or "4x"."""
    return _number(text.removesuffix("x"), 0.25, 1024, f"{text!r} is not a speed; use 0.25 to 1024.")


def _number(text: str, least: float, most: float, complaint: str) -> float:
    try:
        number = read_number(text)
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        raise argparse.ArgumentTypeError(complaint)
    return number


def directory(text: str) -> Path:
    """Returns an absolute path; a tilde is the home directory."""
    if not text:
        # `--runs-dir "$UNSET"` gives an empty path: it must not mean the current directory.
        raise argparse.ArgumentTypeError("it is empty; use . for the current directory.")
    return Path(os.path.expanduser(text)).absolute()
