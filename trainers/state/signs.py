"""The sign of each state that a run may be in, the same on every screen and page, so that none depends on colour."""

from __future__ import annotations

SIGNS = {
    "queued": "◌",
    "starting": "◌",
    "reading": "◌",  # a view has not read the run's journal to its end yet
    "running": "●",
    "stalled": "▲",
    "completed": "✓",
    "stopped": "■",
    "failed": "✖",
    "lost": "✖",
    "newer": "^",
    "unreadable": "!",
}
