"""Devices: what the GPUs and the host do, without a run."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content

from tuiapp.feeds.sampler_feed import SamplerFeed
from tuiapp.state.run_state import RunState
from tuiapp.terminal.covered_screen import CoveredScreenFix
from tuiapp.widgets.device_panel import DevicePanel
from tuiapp.widgets.steady_footer import SteadyFooter

INTERVAL_S = 1.0
TICK_S = 0.2
"""How often what has arrived is shown."""


class DevicesScreen(CoveredScreenFix[None]):
    """The panel of devices with a sampler of its own, which ends with the screen."""

    CSS_PATH = "devices.tcss"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "app.toggle_help", "Keys", id="app.help", key_display="?"),
        Binding("escape", "dismiss", "Back", id="devices.back"),
        Binding("q", "app.leave", "Leave", id="app.leave-letter"),
    ]

    def __init__(self, runs_dir: Path, feed: SamplerFeed | None = None) -> None:
        """Prepare the screen.

        Args:
            runs_dir: Whose disk is shown.
            feed: Gives the samples; a sampler of its own by default.
        """
        super().__init__()
        self.state = RunState()
        self._feed = feed or SamplerFeed(runs_dir, INTERVAL_S)

    def compose(self) -> ComposeResult:
        yield DevicePanel(id="devices", classes="-alone")
        yield SteadyFooter(show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to sample."""
        self.query_one(DevicePanel).border_title = Content("devices of this machine")
        self.set_interval(TICK_S, self._take)

    def on_unmount(self) -> None:
        """End the sampler."""
        self._feed.close()

    def _take(self) -> None:
        if events := self._feed.read():
            for event in events:
                self.state.apply(event)
            self.query_one(DevicePanel).show(self.state)
