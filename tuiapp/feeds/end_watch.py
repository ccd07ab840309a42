"""Announces the end of runs that were live in this session: on the screen, and with the terminal's bell."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from textual.app import App
from textual.screen import ModalScreen

from tuiapp.library.in_thread import PollingThread
from tuiapp.library.liveness import LivenessProbe
from tuiapp.trainers.config.settings import Settings
from tuiapp.trainers.contract.rundir import RunDir

if TYPE_CHECKING:
    from tuiapp.trainers.state.summary import RunInfo

LOOK_EVERY_S = 1.0

NOTICE_S = 15.0
Severity: TypeAlias = Literal["information", "warning", "error"]

SEVERITIES: dict[str, Severity] = {"failed": "error", "lost": "error", "stopped": "warning"}


class EndWatch(PollingThread):
    def __init__(self, app: App[Any], settings: Settings) -> None:
        super().__init__("end-watch")
        self._app, self._settings = app, settings
        self._new: deque[RunDir] = deque()
        self._going: dict[RunDir, LivenessProbe] = {}
        self.ended: set[RunDir] = set()
        """Runs that are known to be over."""

    def add(self, run: RunDir) -> None:
        self.ended.discard(run)
        self._new.append(run)
        self.poll_now()

    def _poll(self) -> Generator[float, None, None]:
        while True:
            while self._new:
                run = self._new.popleft()
                if run not in self._going:
                    self._going[run] = LivenessProbe(run)
                    if not run.is_live():
                        self._forget(run)
            for run in [run for run, pulse in self._going.items() if not pulse.is_alive()]:
                self._forget(run)
                # Imported late: with it the dashboard would start later.
                from tuiapp.trainers.state.summary import summarise

                info = summarise(run)
                # The program may have ended meanwhile.
                with suppress(RuntimeError):
                    self._app.call_later(self.ring, info)
            yield LOOK_EVERY_S

    def _forget(self, run: RunDir) -> None:
        self.ended.add(run)
        self._going.pop(run).close()

    def ring(self, info: RunInfo) -> None:
        from tuiapp.view.notification import ending, notification

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
