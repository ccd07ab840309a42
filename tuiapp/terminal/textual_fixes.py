"""Mends of Textual's timers and screens, a class each; `CoveredScreenFix` and, for dialogs, `ResizeLoopFix` have all.

What each buys is in tests/bench/README.md; `test_still_needed.py` fails when Textual no longer needs one that it names.
"""

from __future__ import annotations

from typing import TypeVar

from textual import events
from textual.app import App
from textual.geometry import Size
from textual.message_pump import MessagePump
from textual.reactive import Reactive
from textual.screen import Screen
from textual.timer import Timer, TimerCallback
from textual.widget import Widget
from textual.widgets._toast import ToastRack

from tuiapp.terminal.exact_painting import ExactPainting

T = TypeVar("T")


class ReliableTimers(MessagePump):
    """Makes one-shot timers of an app, screen or widget fire for certain, late if need be.

    Textual 8.2.8 skips a timer's overdue ticks, and checks that right after reading its start time. If the process is
    held up between the two for longer than the delay, a one-shot timer ends silently, and a chain of them stops: the
    dashboard would freeze while keys still work. Not reported upstream.
    """

    def set_timer(
        self, delay: float, callback: TimerCallback | None = None, *, name: str | None = None, pause: bool = False
    ) -> Timer:
        timer = super().set_timer(delay, callback, name=name, pause=pause)
        # It begins once the caller has returned to the event loop.
        timer._skip = False
        return timer


class FocusWithin(Screen[T]):
    """Restyles only widgets that a `:focus-within` rule selects when the focus moves.

    Textual 8.2.8 restyles the whole outermost widget with such a rule: for a border around the form, each of its fields
    at every Tab; and it misses what a rule selects beneath that widget. The widget that gains or loses the focus is
    restyled anyway. Not reported upstream.
    """

    focused: Reactive[Widget | None] = Reactive(None, repaint=False)

    def _update_focus_styles(self, focused: Widget | None = None, blurred: Widget | None = None) -> None:
        around = {node for moved in filter(None, (focused, blurred)) for node in moved.ancestors_with_self}
        flagged = [child for child in self.walk_children(Widget) if child._has_focus_within]
        # What cannot have the focus in it has such a rule for the sake of a widget around it.
        affected = [node for node in flagged if node in around or not (node.can_focus or node.children)]
        if affected:
            self.app.stylesheet.update_nodes(affected, animate=True)


class NoticesOnTop(Screen[T]):
    """Hides a screen's notices while another screen covers it.

    Textual 8.2.8 shows all notices on the new screen, too: under a dialog each is seen twice, in two places. Not
    reported upstream.
    """

    def _on_screen_suspend(self) -> None:
        # Called in addition to Textual's own. Resuming shows them again.
        for rack in self.query_children(ToastRack):
            rack.display = False


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


class CoveredScreenFix(ResizeLoopFix[T]):
    """A screen that another one may cover: it costs nothing while it cannot be seen, and takes nothing from that one.

    Textual 8.2.8 marks a visible covered screen as due for repainting whenever it has been painted: it paints itself,
    and the screen above, 60 times a second. It asks the screen above for a repaint of what changed beneath, even if
    nothing shows through; that screen then forgets which of its own widgets were due, and shows them as they were.
    Such screens are refreshed since https://github.com/Textualize/textual/pull/6307; neither is reported upstream.
    """

    def _compositor_refresh(self) -> None:
        app = self.app
        if app.is_inline or self is app.screen or self not in app._background_screens:
            super()._compositor_refresh()
            return
        top = app.screen
        if (regions := set(self._compositor._dirty_regions)) and top.styles.background.a < 1:
            # It paints once what changed here, with what changed there.
            top._set_dirty(*regions)
            top._dirty_widgets.add(top)
            top.check_idle()
        self._compositor._dirty_regions.clear()
        self._dirty_widgets.clear()
