"""Chooses a theme, shown while the cursor is on it."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from tuiapp.terminal.resize import ResizeLoopFix


class ThemeList(ModalScreen[str | None], ResizeLoopFix[str | None]):
    """Returns the chosen theme, or None on escape, which shows the former one again."""

    CSS_PATH = "theme_list.tcss"

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "Cancel", id="dialog.cancel")]

    def on_mount(self) -> None:
        self._before = self.app.theme

    def compose(self) -> ComposeResult:
        names = sorted(self.app.available_themes)
        options = [Option(f"{'✓' if name == self.app.theme else ' '} {name}", id=name) for name in names]
        themes = OptionList(*options, markup=False)
        themes.border_title = Content("Theme")
        themes.highlighted = names.index(self.app.theme)
        yield themes

    @on(OptionList.OptionHighlighted)
    def _preview(self, event: OptionList.OptionHighlighted) -> None:
        self.app.theme = event.option_id or self._before

    @on(OptionList.OptionSelected)
    def _choose(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id)

    def action_cancel(self) -> None:
        self.app.theme = self._before
        self.dismiss(None)
