"""Devices: readings of the GPUs and the host, without a run."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content

from tuiapp.feeds.sampler_feed import SamplerFeed
from tuiapp.terminal.textual_fixes import CoveredScreenFix
from tuiapp.trainers.contract.process_identity import identity, send_signal
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState
from tuiapp.view.devices.processes import describe
from tuiapp.widgets.device_panel import DevicePanel
from tuiapp.widgets.steady_footer import SteadyFooter

INTERVAL_S = 1.0
TICK_S = 0.2


class DevicesScreen(CoveredScreenFix[None]):
    """The device panel with its own sampler, which ends with the screen; `runs_dir` names the disk shown."""

    CSS_PATH = "devices.tcss"
    MANUAL = "devices"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "sort", "Sort", tooltip="Sort the processes", id="devices.sort"),
        Binding("s", "end", "End", tooltip="End a process", id="devices.end"),
        Binding("question_mark", "app.toggle_help", "Keys", id="app.help", key_display="?"),
        Binding("escape", "dismiss", "Back", id="devices.back"),
        Binding("q", "app.quit", "Quit", id="app.quit-letter"),
    ]

    def __init__(self, runs_dir: Path, feed: SamplerFeed | None = None) -> None:
        super().__init__()
        self.state = RunState()
        self._feed = feed or SamplerFeed(runs_dir, INTERVAL_S)

    def compose(self) -> ComposeResult:
        yield DevicePanel(id="devices", classes="-alone")
        yield SteadyFooter()

    def on_mount(self) -> None:
        self.query_one(DevicePanel).border_title = Content("devices of this machine")
        self.set_interval(TICK_S, self._take)

    def action_sort(self) -> None:
        self.query_one(DevicePanel).sort_by_next()

    @work(group="ask")
    async def action_end(self) -> None:
        """Asks which of the processes listed to end, and how."""
        # Imported late: few need them.
        from tuiapp.screens.dialog import Choice
        from tuiapp.screens.pickers import ProcessList

        listed = self.query_one(DevicePanel).processes
        # A pid may be another process's by the time of the answer.
        known_as = {row.pid: identity(row.pid) for row in listed}
        chosen = await self.app.push_screen_wait(ProcessList(listed))
        if chosen is None:
            return
        text = f"{describe(chosen)}\n \nSIGTERM asks it to end; SIGKILL ends it at once, whatever it has not saved."
        answers = [("keep", "Keep it", "default"), ("term", "SIGTERM", "warning"), ("kill", "SIGKILL", "error")]
        answer = await self.app.push_screen_wait(Choice(f"End process {chosen.pid}?", text, answers))
        sent = {"term": signal.SIGTERM, "kill": signal.SIGKILL}.get(answer or "")
        if sent is None:
            return
        try:
            send_signal(known_as[chosen.pid], sent)
        except ProcessLookupError:
            self.notify(f"Process {chosen.pid} has ended already, or is not of this container.", markup=False)
        except PermissionError:
            self.notify(f"Process {chosen.pid} is another user's: {chosen.user}.", severity="error", markup=False)
        else:
            self.notify(f"Sent {sent.name} to process {chosen.pid}.", markup=False)

    def on_unmount(self) -> None:
        self._feed.close()

    def _take(self) -> None:
        if events := self._feed.read():
            for event in events:
                apply(self.state, event)
            self.query_one(DevicePanel).show(self.state)
