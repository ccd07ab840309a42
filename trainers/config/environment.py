"""What environment variables set, because it changes nothing of what is trained."""

from __future__ import annotations

import math
import os

from trainers.config.options import ConfigError, Problem, read_number

HANG_VARIABLE = "TUIAPP_HANG_S"
"""Seconds without a step, or with a stopped rank, after which a person is told."""
HANG_S, LEAST_HANG_S, MOST_HANG_S = 30.0, 1.0, 604_800.0

INTERVAL_VARIABLE = "TUIAPP_TELEMETRY_S"
GPUS_VARIABLE = "TUIAPP_TELEMETRY_GPUS"
"""What is sampled in place of the run's own GPUs: indices or UUIDs, or "all"."""
INTERVAL_S, LEAST_INTERVAL_S, MOST_INTERVAL_S = 1.0, 0.25, 3600.0
"""Drivers take some milliseconds to answer, and renew their figures a few times a second."""


def hang_limit_s() -> float:
    """The limit for steps, as TUIAPP_HANG_S says.

    Raises:
        ConfigError: it says something that cannot be.
    """
    return read_seconds(HANG_VARIABLE, HANG_S, LEAST_HANG_S, MOST_HANG_S)


def telemetry_interval_s() -> float:
    """Seconds from one sample to the next, as TUIAPP_TELEMETRY_S says.

    Raises:
        ConfigError: it says something that cannot be.
    """
    return read_seconds(INTERVAL_VARIABLE, INTERVAL_S, LEAST_INTERVAL_S, MOST_INTERVAL_S)


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
