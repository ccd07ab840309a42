"""A screen that settles after a rapid series of resizes, and whose timers fire and notices are shown once."""

from __future__ import annotations

from typing import TypeVar

from textual import events
from textual.app import App
from textual.geometry import Size

from tuiapp.terminal.exact_painting import ExactPainting
from tuiapp.terminal.focus_within import FocusWithin
from tuiapp.terminal.notices_on_top import NoticesOnTop
from tuiapp.terminal.reliable_timers import ReliableTimers

T = TypeVar("T")


class ResizeLoopFix(ReliableTimers, FocusWithin[T], NoticesOnTop[T], ExactPainting[T]):
    """Accepts no size but the terminal's present one, and is styled and laid out once before it is shown.

    In Textual 8.2.8 a screen laid out for a size sends itself that size. With two sizes in flight, as on a busy
    machine, each triggers a layout and another message, for ever: the program freezes. Not reported upstream.

    Textual styles widgets when they are mounted, and all of them again when the screen is shown; it sets breakpoints
    only after the first layout, so that the contents jump; and it lays the screen out again for the size that the
    screen sends itself. The first picture of the form would come a tenth of a second later.

    List it after `ModalScreen`: Textual takes a class's styles from its first base.
    """

    def _post_register(self, app: App[object]) -> None:
        super()._post_register(app)
        self._set_breakpoints(app.size)
        # Textual reads a screen's stylesheet after it has styled the screen, and styles that again when it is shown.
        app._load_screen_css(self)
        # Of changes of the stylesheet: the styles that are computed now are those of the present one.
        self._css_update_count = app._css_update_count

    def _on_screen_resume(self, event: events.ScreenResume) -> None:
        # Textual's own handlers come after those of this class.
        count = self.app._css_update_count
        event.refresh_styles = self._set_breakpoints(self.app.size) or count != self._css_update_count
        self._css_update_count = count

    async def _on_resize(self, event: events.Resize) -> None:
        if event.size == self.app.size != self._size:
            return
        event.stop()
        event.prevent_default()
        if self._set_breakpoints(self.app.size):
            self.update_node_styles()

    def _set_breakpoints(self, size: Size) -> bool:
        """Sets the classes of a size without applying their styles; returns whether they have changed."""
        before = self.classes
        for breakpoints, cells in ((self.HORIZONTAL_BREAKPOINTS, size.width), (self.VERTICAL_BREAKPOINTS, size.height)):
            reached = [name for least, name in sorted(breakpoints or []) if least <= cells]
            self.remove_class(*(name for _, name in breakpoints or []), update=False)
            self.add_class(*reached[-1:], update=False)
        return self.classes != before
