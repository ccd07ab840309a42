"""The lowest screen, made when it is first shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual.screen import Screen

from tuiapp.terminal.resize import ResizeLoopFix


class LazyRootScreen(ResizeLoopFix[None]):
    """Pushes another screen once shown, so that opening a run builds no form: Textual cannot replace the lowest."""

    def __init__(self, make: Callable[[], Screen[Any]]) -> None:
        super().__init__()
        self._make = make
        self._was_covered = False

    def on_screen_suspend(self) -> None:
        self._was_covered = True

    def on_screen_resume(self) -> None:
        if self._was_covered and self.app.screen is self:
            self.app.push_screen(self._make())
