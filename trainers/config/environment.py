"""Settings by environment variable: those that do not affect training."""

from __future__ import annotations

import math
import os

from tuiapp.trainers.config.options import ConfigError, Problem, read_number

HANG_VARIABLE = "TUIAPP_HANG_S"
"""Seconds without a step, or with a stopped rank, before an alert."""
HANG_S, LEAST_HANG_S, MOST_HANG_S = 30.0, 1.0, 604_800.0

INTERVAL_VARIABLE = "TUIAPP_TELEMETRY_S"
GPUS_VARIABLE = "TUIAPP_TELEMETRY_GPUS"
"""What to sample instead of the run's own GPUs: indices or UUIDs, or "all"."""
INTERVAL_S, LEAST_INTERVAL_S, MOST_INTERVAL_S = 1.0, 0.25, 3600.0
"""Drivers take some milliseconds to answer, and update their figures a few times a second."""


def hang_limit_s() -> float:
    """The limit for steps, from TUIAPP_HANG_S; raises ConfigError if that is invalid."""
    return read_seconds(HANG_VARIABLE, HANG_S, LEAST_HANG_S, MOST_HANG_S)


def telemetry_interval_s() -> float:
    """Seconds between samples, from TUIAPP_TELEMETRY_S; raises ConfigError if that is invalid."""
    return read_seconds(INTERVAL_VARIABLE, INTERVAL_S, LEAST_INTERVAL_S, MOST_INTERVAL_S)


def read_seconds(variable: str, default: float, least: float, most: float) -> float:
    """Seconds from an environment variable; raises ConfigError for a non-number, or one out of range."""
    text = os.environ.get(variable, "").strip()
    if not text:
        return default
    try:
        seconds = read_number(text)
    except ValueError:
        seconds = math.nan
    if not least <= seconds <= most:
        raise ConfigError([Problem(variable, f"{text!r} is not a number of seconds from {least} to {most:.0f}.")])
    return seconds
