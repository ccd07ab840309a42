"""Shows whether a device is idle, hot or full: the GPUs (else the ranks' processes) and the host."""

from __future__ import annotations

from asyncio import to_thread
from socket import gethostname
from time import monotonic
from typing import TYPE_CHECKING

from textual import on
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Static

from tuiapp.state.devices.efficiency import efficiency_line
from tuiapp.state.devices.gpu_rows import one_row_each, two_a_row, two_rows_each
from tuiapp.state.devices.host import host_line, host_rows
from tuiapp.state.devices.processes import process_rows, rank_processes
from tuiapp.state.devices.spans import Line, Span, line
from tuiapp.state.devices.view import GpuView, gpu_views
from tuiapp.state.run_state import RunState
from tuiapp.state.text import format_clock
from tuiapp.widgets.node_scroll import NodeScroll
from tuiapp.widgets.spans import styled
from tuiapp.widgets.text_panel import TextPanel

if TYPE_CHECKING:
    from tuiapp.library.processes import ProcessReader
    from tuiapp.state.devices.process_list import ProcessKey, Seen


LOOK_S = 2.0
"""Shortest time between two looks at the processes."""


class DevicePanel(TextPanel, NodeScroll):
    WAITING = "sampling…"
    LEAST_WIDTH = 34

    sort: reactive[ProcessKey] = reactive("rank", init=False)
    """Key of the processes, where it has room for them."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._reader: ProcessReader | None = None
        self._seen: dict[int, Seen] = {}
        self._looked = -LOOK_S
        self._keys: list[ProcessKey] = []

    def lines(self, state: RunState, width: int) -> list[Content]:
        views = gpu_views(state)
        self.place([])
        past = f"last sampled at {format_clock(state.host.time)}" if state.host and not state.is_live else ""
        # A small terminal has no room for a border.
        beneath = bool(past) and self.screen.has_class("-single")
        if state.nodes:
            return self._by_node(state, views, width)
        lines = self._all(state, views, width, beneath) if self._alone else self._brief(state, views, width)
        if not lines:
            waiting = "nothing to sample before it starts" if state.status == "queued" else self.WAITING
            lines = [line(Span(waiting if state.is_live else "not available: the run has no samples", "muted"))]
        if past != (self.border_subtitle or ""):
            self.border_subtitle = past
        if beneath:
            lines += [[], line(Span(past, "muted"))]
        dark = self.app.current_theme.dark
        return [styled(spans, dark=dark) for spans in [*_problems(state), *lines]]

    def _by_node(self, state: RunState, views: list[GpuView], width: int) -> list[Content]:
        """Returns a group of lines for each node, which may be folded."""
        # Imported here: most runs are on one machine.
        from tuiapp.state.devices.node_rows import node_lines

        self.begin(state)
        heading, nodes = node_lines(state, views, width, self.groups, large=self._alone)
        derived = efficiency_line(state, width)
        dark = self.app.current_theme.dark
        shown = [styled(spans, dark=dark) for spans in [*_problems(state), *([derived] if derived else []), heading]]
        places = []
        for number, lines in nodes:
            places.append(NodeScroll.Place(number, len(shown), len(lines)))
            first, *rest = (styled(spans, dark=dark) for spans in lines)
            shown += [first.stylize("reverse") if self.is_at(number) else first, *rest]
        self.place(places)
        return shown

    @on(NodeScroll.Folded)
    def _draw_folds(self) -> None:
        self._draw()

    @property
    def _alone(self) -> bool:
        return self.has_class("-alone") or self.screen.has_class("-one")

    def _brief(self, state: RunState, views: list[GpuView], width: int) -> list[Line]:
        room = self._most_lines()
        lines: list[Line] = []
        if views:
            lines += _fitting(views, width, room)
        else:
            processes = len(rank_processes(state))
            lines += process_rows(state, width, details=2 * processes + 4 <= room)
        if derived := efficiency_line(state, width):
            lines.append(derived)
        if state.host and len(lines) < room:
            rows = host_rows(state.host, width, room - len(lines))
            lines += rows if not views or room - len(lines) > len(rows) + 3 else [host_line(state.host, width)]
        return lines

    def _all(self, state: RunState, views: list[GpuView], width: int, beneath: bool) -> list[Line]:
        # Imported here: they must not delay the first picture.
        from tuiapp.state.devices.large import large_view
        from tuiapp.state.devices.process_list import process_rows_of, sort_keys

        if self._is_here(state):
            self._look()
            seen = self._seen
        else:
            seen = {}
        height = self.size.height - len(_problems(state)) - 2 * beneath
        processes = process_rows_of(state, views, seen, self.sort)
        self._keys = sort_keys(processes)
        if self.sort not in self._keys:
            self.set_reactive(DevicePanel.sort, self._keys[0])
            processes = process_rows_of(state, views, seen, self.sort)
        return large_view(state, views, processes, width, height, self.sort)

    def _is_here(self, state: RunState) -> bool:
        """Whether the processes of this machine are those beside the samples'."""
        if self.has_class("-alone"):
            return True
        host = state.started.host if state.started else ""
        return state.is_live and not state.replayed and host == gethostname()

    def _look(self) -> None:
        """Reads the processes, now and then, and only while they are on screen."""
        now = monotonic()
        if now - self._looked < LOOK_S or not (self.display and self.screen.is_current):
            return
        self._looked = now
        self.run_worker(self._read_processes(), exclusive=True)

    async def _read_processes(self) -> None:
        if self._reader is None:
            # Imported here: it must not delay the first picture.
            from tuiapp.library.processes import ProcessReader

            self._reader = ProcessReader()
        self._seen = await to_thread(self._reader.read)
        # Meanwhile the screen may have been left.
        if self.query(Static):
            self._draw()

    def sort_by_next(self) -> None:
        """Sorts the processes by the next key, the largest first."""
        if self.sort in self._keys:
            self.sort = self._keys[(self._keys.index(self.sort) + 1) % len(self._keys)]

    def watch_sort(self) -> None:
        self._draw()

    def _most_lines(self) -> int:
        holder = self.parent.size.height if isinstance(self.parent, Widget) else 0
        return max(4, holder // 2 - 2 - len(_problems(self._state)))


def _problems(state: RunState) -> list[Line]:
    return [line(Span(f"▲ {source}: {problem}", "warning")) for source, problem in state.telemetry_problems.items()]


def _fitting(views: list[GpuView], width: int, room: int) -> list[Line]:
    """Returns the GPUs in the most detailed form that leaves a line for the rest."""
    for form in (two_rows_each, one_row_each):
        if len(lines := form(views, width)) < room:
            return lines
    return two_a_row(views, width)
