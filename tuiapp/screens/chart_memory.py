"""Keeps how a screen's charts are seen for the next time."""

from __future__ import annotations

from functools import partial
from typing import Any

from textual.screen import Screen
from textual.timer import Timer

from trainers.state.text import sanitize
from tuiapp.library.chart_view import change_view, read_view, view_path

SAVE_S = 1.0
"""Between the last change and its writing."""


class ChartMemory:
    """Reads the view once, and writes changes in a thread: a slow home directory must not delay a key."""

    def __init__(self, screen: Screen[Any]) -> None:
        self._screen = screen
        self.view, self._problem = read_view()
        self._changes: dict[str, object] = {}
        self._timer: Timer | None = None

    def begin(self) -> None:
        """Reports a damaged file."""
        if self._problem:
            self._report(f"Cannot read {view_path()}: {self._problem}. Charts have their defaults.")

    def keep(self, **changes: object) -> None:
        """Writes settings of `ChartView` in a moment."""
        self._changes |= changes
        if self._timer is not None:
            self._timer.stop()
        self._timer = self._screen.set_timer(SAVE_S, self._begin_saving)

    def close(self) -> None:
        """Writes what is not written yet."""
        changes, self._changes = self._changes, {}
        if changes and (problem := _save(changes)):
            self._report(problem)

    def _begin_saving(self) -> None:
        changes, self._changes = self._changes, {}
        self._screen.run_worker(partial(self._save_in_thread, changes), thread=True)

    def _save_in_thread(self, changes: dict[str, object]) -> None:
        if problem := _save(changes):
            self._screen.app.call_from_thread(self._report, problem)

    def _report(self, words: str) -> None:
        self._screen.app.notify(sanitize(words), title="Charts", severity="warning", markup=False)


def _save(changes: dict[str, object]) -> str:
    try:
        change_view(changes)
    except OSError as error:
        return f"Cannot write {view_path()}: {error.strerror or error}. These settings are not kept."
    return ""
