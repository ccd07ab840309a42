"""The label and help that a form field shows beside its control."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from textual.content import Content

from trainers.config.options import Option

LABEL_CELLS = 17
"""Width of the label column, including the mark of a change."""

CONTROL_CELLS = 20

USEFUL_CELLS = 16
"""Help is hidden where fewer cells remain."""

FAINT = "$text-muted"


@dataclass(frozen=True, slots=True)
class FieldWords:
    option: Option
    text: str
    notes: Mapping[str, str] = field(default_factory=dict)
    """For a choice: value → one-line description."""
    unavailable: Mapping[str, str] = field(default_factory=dict)
    """For a choice: value → why it is unavailable."""

    @property
    def help(self) -> str:
        note = self.notes.get(self.option.prefix_of(self.text) or self.text, "")
        return self.unavailable.get(self.text) or note or self.option.help

    def label(self, changed: bool) -> Content:
        words = f"{'•' if changed else ' '} {self.option.label}".ljust(LABEL_CELLS)
        return Content.styled(words, "bold $text-warning") if changed else Content(words)

    def help_within(self, width: int) -> Content:
        """Returns the help cut to a field's width, nothing where only a few letters fit."""
        room = width - LABEL_CELLS - CONTROL_CELLS - 2
        helping = Content(self.help).truncate(room, ellipsis=True) if room >= USEFUL_CELLS else Content("")
        return helping.stylize(FAINT)
