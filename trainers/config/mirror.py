"""Where a run's metrics are written a second time while it trains: `mirror = "tensorboard:DIR"`."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

OFF = "off"
TENSORBOARD = "tensorboard:"
PACKAGE, INSTALL = "tensorboard", "pip install tensorboard"


def mirror_directory(mirror: str) -> Path | None:
    """Returns the absolute directory, resolved against the working directory; None if there is no mirror."""
    if not mirror.startswith(TENSORBOARD):
        return None
    return Path(os.path.expanduser(mirror.removeprefix(TENSORBOARD))).absolute()


def place_mirror(mirror: str) -> str:
    """Returns the value with an absolute directory."""
    directory = mirror_directory(mirror)
    return mirror if directory is None else f"{TENSORBOARD}{directory}"


def mirror_fault(mirror: str) -> str:
    """Returns why nothing can be written there; "" if it can. Makes nothing."""
    directory = mirror_directory(mirror)
    if directory is None:
        return ""
    if importlib.util.find_spec(PACKAGE) is None:
        return f"{mirror} needs {PACKAGE}, which is not installed: {INSTALL}"
    try:
        # What is not there yet is made by the run.
        there = next(path for path in (directory, *directory.parents) if os.path.exists(path))
    except (OSError, ValueError) as error:
        return f"{directory} cannot be used: {getattr(error, 'strerror', None) or error}."
    if not os.path.isdir(there):
        return f"{there} is not a directory."
    if not os.access(there, os.W_OK | os.X_OK):
        return f"{there} cannot be written to; name another directory."
    return ""
