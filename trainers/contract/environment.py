"""Times that environment variables set, because they change nothing of what is trained."""

from __future__ import annotations

import math
import os

from trainers.config.options import ConfigError, Problem, read_number

HANG_VARIABLE = "TUIAPP_HANG_S"
"""Seconds without a step, or with a stopped rank, after which a person is told."""
HANG_S, LEAST_HANG_S, MOST_HANG_S = 30.0, 1.0, 604_800.0


def hang_limit_s() -> float:
    """The limit for steps, as TUIAPP_HANG_S says.

    Raises:
        ConfigError: it says something that cannot be.
    """
    return read_seconds(HANG_VARIABLE, HANG_S, LEAST_HANG_S, MOST_HANG_S)


def read_seconds(variable: str, default: float, least: float, most: float) -> float:
    """A number of seconds that an environment variable sets.

    Raises:
        ConfigError: it is no number, or out of range.
    """
    text = os.environ.get(variable, "").strip()
    if not text:
        return default
    try:
        seconds = read_number(text)
    except ValueError:
        seconds = math.nan
    if not least <= seconds <= most:
        raise ConfigError([Problem(variable, f"{text!r} is no number of seconds from {least} to {most:.0f}.")])
    return seconds
