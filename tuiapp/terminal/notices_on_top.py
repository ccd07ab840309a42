"""A screen whose notices are shown once."""

from __future__ import annotations

from typing import TypeVar

from textual.screen import Screen
from textual.widgets._toast import ToastRack

T = TypeVar("T")


class NoticesOnTop(Screen[T]):
    """Hides its notices while another screen covers it.

    Textual 8.2.8 shows all notices on the new screen, too: under a dialog each is seen twice, in two places. Not
    reported upstream.
    """

    def _on_screen_suspend(self) -> None:
        # Called in addition to Textual's own. Resuming shows them again.
        for rack in self.query_children(ToastRack):
            rack.display = False
