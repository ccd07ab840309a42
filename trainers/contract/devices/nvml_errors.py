"""NVML's errors in words that say what to do."""

from __future__ import annotations

LIBRARY_NOT_FOUND, LIB_RM_VERSION_MISMATCH = 12, 18
"""NVML's numbers for them."""

NO_DRIVER = "no NVIDIA driver here (libnvidia-ml.so.1 not found)"


def nvml_words(error: Exception) -> str:
    """An NVMLError as people are told of it."""
    if getattr(error, "value", None) == LIBRARY_NOT_FOUND:
        return NO_DRIVER
    if getattr(error, "value", None) == LIB_RM_VERSION_MISMATCH:
        return "the driver's library and its kernel module are of different versions: reboot, or load the module anew"
    return str(error)
