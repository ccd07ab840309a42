"""A screen on which moving the focus is cheap."""

from __future__ import annotations

from typing import TypeVar

from textual.reactive import Reactive
from textual.screen import Screen
from textual.widget import Widget

T = TypeVar("T")


class FocusWithin(Screen[T]):
    """Restyles only widgets that a `:focus-within` rule selects when the focus moves.

    Textual 8.2.8 restyles the whole outermost widget with such a rule: for a border around the form, each of its fields
    at every Tab. The widget that gains or loses the focus is restyled anyway.
    """

    focused: Reactive[Widget | None] = Reactive(None, repaint=False)

    def _update_focus_styles(self, focused: Widget | None = None, blurred: Widget | None = None) -> None:
        affected = set[Widget]()
        for moved in filter(None, (focused, blurred)):
            outermost = next((one for one in reversed(moved.ancestors_with_self) if one._has_focus_within), None)
            if outermost is not None:
                affected.update(one for one in outermost.walk_children(Widget, with_self=True) if one._has_focus_within)
        if affected:
            self.app.stylesheet.update_nodes(affected, animate=True)
