"""The lowest screen, made when it is first shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual.screen import Screen

from tuiapp.terminal.resize import ResizeLoopFix


class LazyRootScreen(ResizeLoopFix[None]):
    """An empty screen that pushes another one when it comes to the front: Textual cannot replace the lowest.

    Opening a run then neither imports nor builds the form beneath it.
    """

    def __init__(self, make: Callable[[], Screen[Any]]) -> None:
        super().__init__()
        self._make = make
        self._was_covered = False

    def on_screen_suspend(self) -> None:
        self._was_covered = True

    def on_screen_resume(self) -> None:
        if self._was_covered and self.app.screen is self:
            self.app.push_screen(self._make())
