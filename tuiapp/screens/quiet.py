"""A screen that is not painted more often than there is something to see."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from textual.geometry import Size

from tuiapp.screens.latest_size import LatestSize

T = TypeVar("T")


TURNS = 4
"""Of the event loop, after which a widget has dealt with its new size: it tells the one that holds it, which tells it
what to show, and it says that it is to be painted."""

EXCHANGE_S = 1 / 60
"""After which it is seen whether widgets are still being exchanged."""


class QuietScreen(LatestSize[T]):
    """A screen that another one may lie over without being redrawn all the time, and that is laid out in one picture.

    Textual 8.2.8 marks a screen that can be seen beneath another one as due for repainting whenever it has been
    painted: it then paints itself, and the one above, 60 times a second for as long as the upper one is there.

    It paints a new layout before its widgets have been told of their new sizes, and once more when they have dealt with
    those: a panel that is given all the room was written to the terminal twice, with the wrong content at first.

    While widgets are exchanged, as when a footer is made anew, it writes nothing, and holds for painted what it was to
    paint then: that is painted afterwards.
    """

    is_held = False
    """It is laid out and not painted: there is nothing to see yet. What was there before it stays."""

    _lays_out = False

    def _refresh_layout(self, size: Size | None = None, scroll: bool = False) -> None:
        self._lays_out = not scroll
        try:
            super()._refresh_layout(size, scroll)
        finally:
            self._lays_out = False

    def _compositor_refresh(self) -> None:
        if self._lays_out or self.app._batch_count:
            self._paint_after(TURNS)
        else:
            self._paint()

    def _paint_after(self, turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._paint_after, turns - 1)
        elif not self.is_running or not self.is_current:
            return
        elif self.app._batch_count:
            asyncio.get_running_loop().call_later(EXCHANGE_S, self._paint_after, 0)
        elif self._layout_required:
            # A scroll bar that was given another length asks for it, though nothing comes of it as a rule.
            self._layout_required = False
            super()._refresh_layout()
        else:
            self._compositor.update_widgets(self._dirty_widgets)
            self._paint()

    def _paint(self) -> None:
        if self.is_held:
            self._dirty_widgets.clear()
            return
        app = self.app
        if app.is_inline or self is app.screen or self not in app._background_screens:
            super()._compositor_refresh()
            return
        # What changed here is painted once, by the screen on top.
        if regions := set(self._compositor._dirty_regions):
            app.screen.refresh(*regions)
            self._compositor._dirty_regions.clear()
        self._dirty_widgets.clear()
