"""How severe a figure is: ok, high or critical, by a colour and by a sign."""

from __future__ import annotations

from typing import Literal, TypeAlias

from tuiapp.state.devices.condition import FULL_PERCENT
from tuiapp.state.devices.spans import Span

Level: TypeAlias = Literal["good", "warning", "error"]

HIGH_PERCENT = 90.0

_SIGNS: dict[Level, str] = {"good": " ", "warning": "!", "error": "▲"}


def level(percent: float | None, high: float = HIGH_PERCENT, critical: float = FULL_PERCENT) -> Level:
    """Returns the level of a share; the defaults are those of what fills up, as memory or a disk."""
    if percent is None or percent < high:
        return "good"
    return "warning" if percent < critical else "error"


def heat_level(percent: float | None) -> Level:
    """Returns the level of a temperature as a share of that where throttling begins."""
    return level(percent, HIGH_PERCENT, 100.0)


def sign(of: Level) -> Span:
    """Returns "!" for high and "▲" for critical, in its colour; a blank where all is well."""
    return Span(_SIGNS[of], of)
