"""A screen that a window's quick resizing brings to rest, and whose timers fire."""

from __future__ import annotations

from typing import TypeVar

from textual import events

from tuiapp.terminal.focus_within import FocusWithin
from tuiapp.terminal.reliable_timers import ReliableTimers

T = TypeVar("T")


class ResizeLoopFix(ReliableTimers, FocusWithin[T]):
    """Takes no size but the terminal's present one.

    In Textual 8.2.8 a screen that is laid out for a size tells itself of that size. With two sizes under way, as on a
    busy machine, each lays it out anew and is told again, for ever: the program is frozen. Not reported upstream.

    It knows its breakpoints before it is first laid out: Textual works them out after, and what is on the screen by
    then would jump.

    A modal screen names it after `ModalScreen`: Textual takes a class's styles from its first base.
    """

    def _on_mount(self, event: events.Mount) -> None:
        # Know the breakpoints in time. Textual calls this beside the `on_mount` of those that stand on it.
        size = self.app.size
        sides = ((self.HORIZONTAL_BREAKPOINTS, size.width), (self.VERTICAL_BREAKPOINTS, size.height))
        for breakpoints, cells in sides:
            reached = [name for least, name in sorted(breakpoints or []) if least <= cells]
            # All styles are worked out before the first layout anyway.
            self.add_class(*reached[-1:], update=False)

    async def _on_resize(self, event: events.Resize) -> None:
        if event.size != self.app.size:
            event.stop()
            event.prevent_default()
