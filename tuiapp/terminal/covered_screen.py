"""A screen that rests while a question lies over it."""

from __future__ import annotations

from typing import TypeVar

from tuiapp.terminal.resize import ResizeLoopFix

T = TypeVar("T")


class CoveredScreenFix(ResizeLoopFix[T]):
    """A screen that another one may cover without being redrawn all the time.

    Textual 8.2.8 marks a screen that is visible beneath another one as due for repainting whenever it has been
    painted: it then paints itself, and the one above, 60 times a second for as long as the upper one is there. Such
    screens are refreshed since https://github.com/Textualize/textual/pull/6307; the loop is not reported upstream.
    """

    def _compositor_refresh(self) -> None:
        app = self.app
        if app.is_inline or self is app.screen or self not in app._background_screens:
            super()._compositor_refresh()
            return
        # What changed here is painted once, by the screen on top.
        if regions := set(self._compositor._dirty_regions):
            app.screen.refresh(*regions)
            self._compositor._dirty_regions.clear()
        self._dirty_widgets.clear()
