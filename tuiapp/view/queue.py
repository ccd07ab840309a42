"""How what waits in the queue stands, in words."""

from __future__ import annotations

from trainers.state.text import MISSING, format_duration


def start_words(start: float | None, now: float) -> str:
    """Returns when a run is expected to start: "in 5 min"; a dash if that is not known."""
    if start is None:
        return MISSING
    return f"in {format_duration(start - now)}" if start > now + 1 else "next"
