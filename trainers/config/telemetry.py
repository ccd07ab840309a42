"""How the telemetry is set: by the environment, because it changes nothing of what is trained."""

from __future__ import annotations

from trainers.contract.environment import read_seconds

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
    return read_seconds(INTERVAL_VARIABLE, INTERVAL_S, LEAST_INTERVAL_S, MOST_INTERVAL_S)
