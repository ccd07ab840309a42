"""Chooses a theme, shown while the cursor is on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from tuiapp.screens.dialog import Picker


class ThemeList(Picker[str | None]):
    """Returns the chosen theme, or None on escape, which shows the former one again."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "Cancel", id="dialog.cancel")]

    def __init__(self) -> None:
        super().__init__("Theme")
        self._before = self.app.theme

    def found(self, search: str) -> tuple[Sequence[Option], int | None]:
        names = sorted(self.app.available_themes)
        options = [Option(f"{'✓' if name == self._before else ' '} {name}", id=name) for name in names]
        return options, names.index(self._before)

    @on(OptionList.OptionHighlighted)
    def _preview(self, event: OptionList.OptionHighlighted) -> None:
        self.app.theme = event.option_id or self._before

    @on(OptionList.OptionSelected)
    def _choose(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id)

    def action_cancel(self) -> None:
        self.app.theme = self._before
        self.dismiss(None)
