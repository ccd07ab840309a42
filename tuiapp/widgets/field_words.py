"""What a field of the form says beside its control."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from textual.content import Content

from trainers.config.options import Option

LABEL_CELLS = 17
"""The label's column, the mark of a change included."""

CONTROL_CELLS = 20
"""The control's column."""

USEFUL_CELLS = 16
"""Less room than this is not used for help."""

FAINT = "$text-muted"
"""The style of what is read second."""


@dataclass(frozen=True, slots=True)
class FieldWords:
    """One key of the form with its text."""

    option: Option
    text: str
    notes: Mapping[str, str] = field(default_factory=dict)
    """For a choice: value → one line of what it is."""
    unavailable: Mapping[str, str] = field(default_factory=dict)
    """For a choice: value → why it cannot be taken here."""

    @property
    def help(self) -> str:
        """What the key, or the value chosen, means."""
        note = self.notes.get(self.option.prefix_of(self.text) or self.text, "")
        return self.unavailable.get(self.text) or note or self.option.help

    def label(self, changed: bool) -> Content:
        """The name of the key, marked where its value differs from the preset's."""
        words = f"{'•' if changed else ' '} {self.option.label}".ljust(LABEL_CELLS)
        return Content.styled(words, "bold $text-warning") if changed else Content(words)

    def help_within(self, width: int) -> Content:
        """As much of the help as a field so wide has room for.

        A few letters of it are worse than none: the form shows it in full for the field in focus.
        """
        room = width - LABEL_CELLS - CONTROL_CELLS - 2
        helping = Content(self.help).truncate(room, ellipsis=True) if room >= USEFUL_CELLS else Content("")
        return helping.stylize(FAINT)
