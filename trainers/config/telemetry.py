"""How the telemetry is set: by the environment, because it changes nothing of what is trained."""

from __future__ import annotations

import math
import os

from trainers.config.options import ConfigError, Problem

INTERVAL_VARIABLE = "TUIAPP_TELEMETRY_S"
GPUS_VARIABLE = "TUIAPP_TELEMETRY_GPUS"
"""What is sampled in place of the run's own GPUs: indices or UUIDs, or "all"."""
INTERVAL_S, LEAST_INTERVAL_S, MOST_INTERVAL_S = 1.0, 0.25, 3600.0
"""Drivers take some milliseconds to answer, and renew their figures a few times a second."""


def telemetry_interval_s() -> float:
    """Seconds from one sample to the next, as TUIAPP_TELEMETRY_S says.

    Raises:
        ConfigError: it says something that cannot be.
    """
    text = os.environ.get(INTERVAL_VARIABLE, "").strip()
    if not text:
        return INTERVAL_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not LEAST_INTERVAL_S <= seconds <= MOST_INTERVAL_S:
        message = f"{text!r} is no number of seconds from {LEAST_INTERVAL_S} to {MOST_INTERVAL_S:.0f}."
        raise ConfigError([Problem(INTERVAL_VARIABLE, message)])
    return seconds
