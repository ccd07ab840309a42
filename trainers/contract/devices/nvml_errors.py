"""NVML's errors in words that say what to do."""

from __future__ import annotations

LIB_RM_VERSION_MISMATCH = 18
"""NVML's number for it."""


def nvml_words(error: Exception) -> str:
    """An NVMLError as people are told of it."""
    if getattr(error, "value", None) == LIB_RM_VERSION_MISMATCH:
        return "the driver's library and its kernel module are of different versions: reboot, or load the module anew"
    return str(error)
