"""The lowest screen, made when it is first seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual.screen import Screen

from tuiapp.terminal.resize import ResizeLoopFix


class LazyRootScreen(ResizeLoopFix[None]):
    """An empty screen that brings another one when it comes to the front: Textual cannot exchange the lowest.

    Whoever opens a run waits for the run: the form beneath it is neither imported nor made before it is seen.

    Args:
        make: Gives that screen.
    """

    def __init__(self, make: Callable[[], Screen[Any]]) -> None:
        super().__init__()
        self._make = make
        self._was_covered = False

    def on_screen_suspend(self) -> None:
        """Another screen lies over it."""
        self._was_covered = True

    def on_screen_resume(self) -> None:
        """Nothing does any more; at first something is about to."""
        if self._was_covered and self.app.screen is self:
            self.app.push_screen(self._make())
