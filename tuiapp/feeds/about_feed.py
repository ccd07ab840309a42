"""What is written beside a run's journal, polled in a thread: a directory on a slow disk must not delay keys."""

from __future__ import annotations

import contextlib
import threading
from typing import NamedTuple

from trainers.config.options import ConfigError
from trainers.config.run_config import to_toml_values
from trainers.contract.about import About, read_about
from trainers.contract.rundir import RunDir
from trainers.contract.summary import read_config, read_only_reason

POLL_S = 1.0


class Beside(NamedTuple):
    about: About
    newer: str
    """As of `read_only_reason`."""
    config: dict[str, object]
    """As in run.toml, empty if it cannot be read: all that is known of a run before its first event."""


class AboutFeed:
    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._wake = threading.Event()
        self._closed = False
        self.found: Beside | None = None  # None until it was read
        # A daemon never keeps the program from exiting.
        self._thread = threading.Thread(target=self._look, name="about-feed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def look_now(self) -> None:
        self._wake.set()

    def close(self) -> None:
        self._closed = True
        self._wake.set()

    def _look(self) -> None:
        newer = read_only_reason(self._run)
        config: dict[str, object] = {}
        with contextlib.suppress(ConfigError, OSError):
            config = to_toml_values(read_config(self._run))
        while not self._closed:
            self._wake.clear()
            self.found = Beside(read_about(self._run)[0], newer, config)
            self._wake.wait(POLL_S)
