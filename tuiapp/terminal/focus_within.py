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
    at every Tab; and it misses what a rule selects beneath that widget. The widget that gains or loses the focus is
    restyled anyway. Not reported upstream.
    """

    focused: Reactive[Widget | None] = Reactive(None, repaint=False)

    def _update_focus_styles(self, focused: Widget | None = None, blurred: Widget | None = None) -> None:
        around = {one for moved in filter(None, (focused, blurred)) for one in moved.ancestors_with_self}
        flagged = [child for child in self.walk_children(Widget) if child._has_focus_within]
        # What cannot have the focus in it has such a rule for the sake of a widget around it.
        affected = [one for one in flagged if one in around or not (one.can_focus or one.children)]
        if affected:
            self.app.stylesheet.update_nodes(affected, animate=True)
