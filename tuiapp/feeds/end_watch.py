"""Announces the end of runs that were live in this session: on the screen, and with the terminal's bell."""

from __future__ import annotations

import os
from collections import deque
from typing import Any, Literal, TypeAlias

from textual.app import App
from textual.screen import ModalScreen

from trainers.config.settings import Settings
from trainers.contract.rundir import RunDir
from trainers.contract.summary import RunInfo, summarise
from tuiapp.library.liveness import LivenessProbe
from tuiapp.state.notification import ending, notification

LOOK_EVERY_S = 1.0

NOTICE_S = 15.0
Severity: TypeAlias = Literal["information", "warning", "error"]

SEVERITIES: dict[str, Severity] = {"failed": "error", "lost": "error", "stopped": "warning"}


class EndWatch:
    """Looks in a thread: a directory on a slow disk must not delay keys."""

    def __init__(self, app: App[Any], settings: Settings) -> None:
        self._app, self._settings = app, settings
        self._new: deque[RunDir] = deque()
        self._going: dict[RunDir, LivenessProbe] = {}
        self._looking = False

    def begin(self) -> None:
        self._app.set_interval(LOOK_EVERY_S, self._poll)

    def add(self, run: RunDir) -> None:
        self._new.append(run)
        self._poll()

    def _poll(self) -> None:
        if not self._looking and (self._new or self._going):
            self._looking = True
            self._app.run_worker(self._look, thread=True, group="end")

    def _look(self) -> None:
        try:
            while self._new:
                run = self._new.popleft()
                if run not in self._going and run.is_live():
                    self._going[run] = LivenessProbe(run)
            for run in [run for run, pulse in self._going.items() if not pulse.is_alive()]:
                self._going.pop(run).close()
                self._app.call_from_thread(self.ring, summarise(run))
        finally:
            self._looking = False

    def ring(self, info: RunInfo) -> None:
        if self._settings.bell:
            self._app.bell()
        # The run's own screen shows it in full, even below a question.
        shown = [screen for screen in self._app.screen_stack if not isinstance(screen, ModalScreen)]
        if getattr(shown[-1], "run", None) != info.directory:
            severity = SEVERITIES.get(info.status, "information")
            self._app.notify(ending(info), title="A run has ended", severity=severity, timeout=NOTICE_S, markup=False)
        driver = self._app._driver
        if driver is not None and not self._app.is_headless:
            driver.write(notification(self._settings.notification, "tuiapp", ending(info), os.environ))
