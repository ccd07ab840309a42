"""How charts and lists were last seen: read once, and written in a thread when it changes."""

from __future__ import annotations

from functools import partial

import msgspec
from textual.timer import Timer
from textual.widget import Widget

from tuiapp.library.chart_view import change_view, read_view, view_path
from tuiapp.trainers.state.text import sanitize

SAVE_S = 1.0
"""Between the last change and its writing."""


class ChartMemory:
    """Reads the view once, and writes changes in a thread: a slow home directory must not delay a key."""

    def __init__(self, charts: Widget, *, title: str = "Charts") -> None:
        """`title` says whose settings they are."""
        self._charts, self._title = charts, title
        self.view, self._problem = read_view()
        self._changes: dict[str, object] = {}
        self._timer: Timer | None = None

    def begin(self) -> None:
        """Reports a damaged file."""
        if self._problem:
            self._report(f"Cannot read {view_path()}: {self._problem}. {self._title} have their defaults.")

    def keep(self, **settings: object) -> None:
        """Writes those settings of `ChartView` that have changed, in a moment."""
        changes = {name: value for name, value in settings.items() if getattr(self.view, name) != value}
        if not changes:
            return
        self.view = msgspec.structs.replace(self.view, **changes)
        self._changes |= changes
        if self._timer is not None:
            self._timer.stop()
        self._timer = self._charts.set_timer(SAVE_S, self._begin_saving)

    def close(self) -> None:
        """Writes what is not written yet."""
        changes, self._changes = self._changes, {}
        if changes and (problem := _save(changes)):
            self._report(problem)

    def _begin_saving(self) -> None:
        changes, self._changes = self._changes, {}
        self._charts.run_worker(partial(self._save_in_thread, changes), thread=True)

    def _save_in_thread(self, changes: dict[str, object]) -> None:
        if problem := _save(changes):
            self._charts.app.call_from_thread(self._report, problem)

    def _report(self, words: str) -> None:
        self._charts.app.notify(sanitize(words), title=self._title, severity="warning", markup=False)


def _save(changes: dict[str, object]) -> str:
    try:
        change_view(changes)
    except OSError as error:
        return f"Cannot write {view_path()}: {error.strerror or error}. These settings are not kept."
    return ""
