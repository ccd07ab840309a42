"""What a state looks like: a sign, so that none depends on colour, how serious it is, and a few words."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

Severity: TypeAlias = Literal["good", "info", "warning", "error"]

SYMBOLS: dict[Severity, str] = {"good": "●", "info": "◌", "warning": "▲", "error": "✖"}


class Condition(NamedTuple):
    """A state of a run, a rank, a node or a GPU."""

    text: str
    severity: Severity
    sign: str = ""  # where it is not that of its severity
    word: str = ""  # instead of the text where that does not fit, in at most nine cells

    @property
    def stands_out(self) -> bool:
        """Whether it is that of a culprit, or else of something wrong."""
        return self.severity in ("warning", "error")

    @property
    def symbol(self) -> str:
        return self.sign or SYMBOLS[self.severity]

    def __str__(self) -> str:
        return f"{self.symbol} {self.text}"

    def within(self, room: int) -> str:
        """Returns the sign and the text, or where they take more than `room` cells the word."""
        return f"{self.symbol} {self.text if len(self.text) + 2 <= room else self.word}"


BLEMISH = SYMBOLS["warning"]
"""Beside the sign of a run's state: it has come to its end, and not all is well."""


class Sign(NamedTuple):
    symbol: str
    tone: Severity | Literal["live"]


SIGNS = {
    "queued": Sign("◌", "info"),
    "held": Sign("◌", "warning"),
    "starting": Sign("◌", "info"),
    "reading": Sign("◌", "info"),  # a view has not read the run's journal to its end yet
    "running": Sign("●", "live"),
    "stalled": Sign("▲", "error"),
    "completed": Sign("✓", "good"),
    "stopped": Sign("■", "info"),
    "failed": Sign("✖", "error"),
    "lost": Sign("✖", "warning"),
    "newer": Sign("^", "warning"),
    "unreadable": Sign("!", "error"),
}
"""State of a run → its sign, the same on every screen and page."""
