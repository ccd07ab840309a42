"""What the command line's options take: text into values, or a word on what is wrong with it."""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path

from trainers.config.options import read_number

SORTS = (
    "started", "state", "backend", "model", "dataset", "devices", "accuracy", "loss", "speed", "took", "steps", "run"
)  # fmt: skip
"""`tuiapp.state.run_list.COLUMNS` by name: to import those would make every command start later."""


def count(text: str) -> int:
    """A count, 1 or more."""
    if not text.isascii() or not text.isdigit() or int(text[:9]) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no count; write 1 or more.")
    return int(text[:9])


def interval(text: str) -> float:
    """Seconds between two samples."""
    return _number(text, 0.25, 3600, f"{text!r} is no number of seconds from 0.25 to 3600.")


def speed(text: str) -> float:
    """How many times as fast; "4" or "4x"."""
    return _number(text.removesuffix("x"), 0.25, 1024, f"{text!r} is no speed; write 0.25 to 1024.")


def _number(text: str, least: float, most: float, complaint: str) -> float:
    try:
        number = read_number(text)
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        raise argparse.ArgumentTypeError(complaint)
    return number


def directory(text: str) -> Path:
    """A path, absolute; a tilde stands for the home directory."""
    if not text:
        # What `--runs-dir "$UNSET"` gives: it must not mean the directory one stands in.
        raise argparse.ArgumentTypeError("it is empty; write . for the directory you are in.")
    return Path(os.path.expanduser(text)).absolute()
