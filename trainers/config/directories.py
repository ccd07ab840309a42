"""The user's directories, by the XDG Base Directory Specification. Made by whoever writes there.

https://specifications.freedesktop.org/basedir-spec/latest/. Ranks read them, too: nothing here is from other packages.
"""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path:
    """For what can be made again."""
    return _base("XDG_CACHE_HOME", "~/.cache")


def user_config() -> Path:
    """For what the user sets."""
    return _base("XDG_CONFIG_HOME", "~/.config")


def user_data() -> Path:
    """For what the user keeps."""
    return _base("XDG_DATA_HOME", "~/.local/share")


def user_state() -> Path:
    """For what is remembered between two starts."""
    return _base("XDG_STATE_HOME", "~/.local/state")


def _base(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable, "").strip() or os.path.expanduser(default)) / "tuiapp"
