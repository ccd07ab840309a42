"""What is written beside a run's journal, polled in a thread: a directory on a slow disk must not delay keys."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import NamedTuple

from trainers.config.options import ConfigError
from trainers.config.run_config import to_toml_values
from trainers.contract.about import About, read_about
from trainers.contract.rundir import RunDir
from trainers.state.summary import read_config, read_only_reason
from tuiapp.feeds.polling import PollingThread

POLL_S = 1.0


class RunMetadata(NamedTuple):
    about: About
    newer: str
    """As of `read_only_reason`."""
    config: dict[str, object]
    """As in run.toml, empty if it cannot be read: all that is known of a run before its first event."""


class MetadataFeed(PollingThread):
    def __init__(self, run: RunDir) -> None:
        super().__init__("about-feed")
        self._run = run
        self.found: RunMetadata | None = None  # None until it was read

    def _poll(self) -> Generator[float, None, None]:
        newer = read_only_reason(self._run)
        config: dict[str, object] = {}
        with contextlib.suppress(ConfigError, OSError):
            config = to_toml_values(read_config(self._run))
        while True:
            self.found = RunMetadata(read_about(self._run)[0], newer, config)
            yield POLL_S
