"""Devices: what the GPUs and the host do, without a run."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content

from trainers.contract.events import AnyEvent
from tuiapp.feeds.kept_sampler import KeptSampler
from tuiapp.feeds.sampler_feed import SamplerFeed, Samples, existing
from tuiapp.state.run_state import RunState
from tuiapp.terminal.covered_screen import QuietScreen
from tuiapp.widgets.device_panel import DevicePanel
from tuiapp.widgets.steady_footer import SteadyFooter

INTERVAL_S = 1.0
TICK_S = 0.2
"""How often what has arrived is shown."""


class DevicesScreen(QuietScreen[None]):
    """The panel of devices with a sampler of its own, which ends with the screen."""

    CSS_PATH = "devices.tcss"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "app.toggle_help", "Keys", id="app.help", key_display="?"),
        Binding("escape", "dismiss", "Back", id="devices.back"),
        Binding("q", "app.leave", "Leave", id="app.leave-letter"),
    ]

    def __init__(self, runs_dir: Path, make_sampler: Callable[[], Samples] | None = None) -> None:
        """Prepare the screen.

        Args:
            runs_dir: Whose disk is shown.
            make_sampler: Gives what the samples come from, again when that is gone; a process of its own by default.
        """
        super().__init__()
        self.state = RunState()
        self._feed = KeptSampler(make_sampler or partial(SamplerFeed, existing(runs_dir), INTERVAL_S))
        self._arrived: deque[AnyEvent] = deque()

    def compose(self) -> ComposeResult:  # noqa: D102
        yield DevicePanel(id="devices", classes="-alone")
        yield SteadyFooter(show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to sample."""
        self.query_one(DevicePanel).border_title = Content("devices of this machine")
        threading.Thread(target=self._gather, name="devices", daemon=True).start()
        self.set_interval(TICK_S, self._take)

    def on_unmount(self) -> None:
        """End the sampler."""
        self._feed.close()

    def _gather(self) -> None:
        for events in self._feed.samples():
            self._arrived.extend(events)

    def _take(self) -> None:
        if not self._arrived:
            return
        while self._arrived:
            self.state.apply(self._arrived.popleft())
        self.query_one(DevicePanel).show(self.state)
