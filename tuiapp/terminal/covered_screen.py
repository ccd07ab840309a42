"""A screen that is not repainted while another one covers it."""

from __future__ import annotations

from typing import TypeVar

from tuiapp.terminal.resize import ResizeLoopFix

T = TypeVar("T")


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
