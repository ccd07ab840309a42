"""A screen that settles after a rapid series of resizes, and whose timers fire and notices are shown once."""

from __future__ import annotations

from typing import TypeVar

from textual import events

from tuiapp.terminal.focus_within import FocusWithin
from tuiapp.terminal.notices_on_top import NoticesOnTop
from tuiapp.terminal.reliable_timers import ReliableTimers

T = TypeVar("T")


class ResizeLoopFix(ReliableTimers, FocusWithin[T], NoticesOnTop[T]):
    """Accepts no size but the terminal's present one.

    In Textual 8.2.8 a screen laid out for a size sends itself that size. With two sizes in flight, as on a busy
    machine, each triggers a layout and another message, for ever: the program freezes. Not reported upstream.

    It sets its breakpoints before the first layout: Textual does so after, which would make the contents jump.

    List it after `ModalScreen`: Textual takes a class's styles from its first base.
    """

    def _on_mount(self, event: events.Mount) -> None:
        # Sets the breakpoints in time. Textual calls this in addition to subclasses' `on_mount`.
        size = self.app.size
        sides = ((self.HORIZONTAL_BREAKPOINTS, size.width), (self.VERTICAL_BREAKPOINTS, size.height))
        for breakpoints, cells in sides:
            reached = [name for least, name in sorted(breakpoints or []) if least <= cells]
            # All styles are computed before the first layout anyway.
            self.add_class(*reached[-1:], update=False)

    async def _on_resize(self, event: events.Resize) -> None:
        if event.size != self.app.size:
            event.stop()
            event.prevent_default()
