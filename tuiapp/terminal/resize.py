"""A screen that settles after a rapid series of resizes, and whose timers fire and notices are shown once."""

from __future__ import annotations

from typing import TypeVar

from textual import events
from textual.app import App

from tuiapp.terminal.focus_within import FocusWithin
from tuiapp.terminal.notices_on_top import NoticesOnTop
from tuiapp.terminal.reliable_timers import ReliableTimers

T = TypeVar("T")


class ResizeLoopFix(ReliableTimers, FocusWithin[T], NoticesOnTop[T]):
    """Accepts no size but the terminal's present one.

    In Textual 8.2.8 a screen laid out for a size sends itself that size. With two sizes in flight, as on a busy
    machine, each triggers a layout and another message, for ever: the program freezes. Not reported upstream.

    It sets its breakpoints before it is first styled: Textual does so after the first layout, which would make the
    contents jump. And it styles its widgets only once: Textual does so when they are mounted, and again when the screen
    is shown, which costs the form a tenth of a second.

    List it after `ModalScreen`: Textual takes a class's styles from its first base.
    """

    def _post_register(self, app: App[object]) -> None:
        super()._post_register(app)
        sides = ((self.HORIZONTAL_BREAKPOINTS, app.size.width), (self.VERTICAL_BREAKPOINTS, app.size.height))
        for breakpoints, cells in sides:
            reached = [name for least, name in sorted(breakpoints or []) if least <= cells]
            self.add_class(*reached[-1:], update=False)
        self._css_update_count = app._css_update_count

    def _on_screen_resume(self, event: events.ScreenResume) -> None:
        # Textual calls this in addition to its own, which comes after. The count is of changes of the stylesheet.
        event.refresh_styles = self._css_update_count != self.app._css_update_count
        self._css_update_count = self.app._css_update_count

    async def _on_resize(self, event: events.Resize) -> None:
        if event.size != self.app.size or event.size == self._size:
            event.stop()
            event.prevent_default()
