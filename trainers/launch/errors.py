"""Why a run does not start."""

from __future__ import annotations


class LaunchError(Exception):
    """The run could not be started, and leaves nothing behind; or it could not be resumed, and is unchanged."""
