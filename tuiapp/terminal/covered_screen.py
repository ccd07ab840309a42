"""A screen that is not repainted while another one covers it."""

from __future__ import annotations

from typing import TypeVar

from tuiapp.terminal.resize import ResizeLoopFix

T = TypeVar("T")


class CoveredScreenFix(ResizeLoopFix[T]):
    """A screen that another one may cover without a repaint loop.

    Textual 8.2.8 marks a visible covered screen as due for repainting whenever it has been painted: it paints itself,
    and the screen above, 60 times a second. Such screens are refreshed since
    https://github.com/Textualize/textual/pull/6307; the loop is not reported upstream.
    """

    def _compositor_refresh(self) -> None:
        app = self.app
        if app.is_inline or self is app.screen or self not in app._background_screens:
            super()._compositor_refresh()
            return
        # The screen on top paints once what changed here.
        if regions := set(self._compositor._dirty_regions):
            app.screen.refresh(*regions)
            self._compositor._dirty_regions.clear()
        self._dirty_widgets.clear()
