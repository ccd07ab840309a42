"""Shows whether a device is idle, hot or full: the GPUs (else the ranks' processes) and the host."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Sequence
from socket import gethostname
from time import monotonic
from typing import TYPE_CHECKING

from textual import on
from textual.content import Content
from textual.reactive import reactive

from tuiapp.trainers.state.rank_state import NodeState
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.signs import SYMBOLS
from tuiapp.trainers.state.text import format_clock
from tuiapp.view.devices.drawing import Line, Span, line
from tuiapp.view.devices.host import full_rows, host_line, host_rows, host_view
from tuiapp.view.devices.large import efficiency_line
from tuiapp.view.devices.processes import process_rows, rank_processes
from tuiapp.view.devices.view import GpuView, gpu_views, one_row_each, two_a_row, two_rows_each
from tuiapp.widgets.colors import styled
from tuiapp.widgets.node_scroll import NodeScroll
from tuiapp.widgets.text_view import TextPanel, TextView

if TYPE_CHECKING:
    from tuiapp.library.processes import ProcessReader
    from tuiapp.view.devices.processes import ProcessKey, ProcessRow, Seen


LEAST_LISTED = 3
"""Nodes above the one that a large panel shows."""

MOST_DETAILED = 2
"""GPUs that have two lines each beside other panels; more if there is room."""

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
        self._read_at = -LOOK_S
        self._keys: list[ProcessKey] = []
        self._is_sorted = False
        """Whether the user has chosen the key; else it is the first: that of GPUs once their processes are known."""
        self.processes: Sequence[ProcessRow] = ()
        """The processes that a large panel lists."""
        self._lists_all = False
        """Whether a large panel lists all nodes, and shows none."""
        self._opened: int | None = None
        """The node that a large panel shows."""

    def lines(self, state: RunState, width: int) -> list[Content]:
        if state.reading is not None:
            return [styled(line(Span("reading the run's journal…", "muted")), dark=self.app.current_theme.dark)]
        views = gpu_views(state)
        past = f"last sampled at {format_clock(state.host.time)}" if state.host and not state.is_live else ""
        # A small terminal has no room for a border.
        beneath = bool(past) and self.screen.has_class("-single")
        problems = state.telemetry_problems.items()
        head = [line(Span(f"{SYMBOLS['warning']} {source}: {problem}", "warning")) for source, problem in problems]
        tail = [[], line(Span(past, "muted"))] if beneath else []
        room = self.size.height - len(head) - len(tail)
        places: list[NodeScroll.Place] = []
        if state.nodes:
            lines, places = self._by_node(state, views, width, room)
        else:
            lines = self._all(state, views, width, room) if self._alone else self._brief(state, views, width, room)
        if not lines:
            waiting = "nothing to sample before it starts" if state.status == "queued" else self.WAITING
            lines = [line(Span(waiting if state.is_live else "not available: the run has no samples", "muted"))]
        if past != (self.border_subtitle or ""):
            self.border_subtitle = past
        dark = self.app.current_theme.dark
        shown = [styled(spans, dark=dark) for spans in [*head, *lines, *tail]]
        for place in places:
            place.line += len(head)
            if self.is_at(place.node):
                shown[place.line] = shown[place.line].stylize("reverse")
        self.place(places, state.nodes)
        return shown

    @property
    def wanted_height(self) -> int:
        """Lines in which all devices are to be seen, among other panels."""
        state, width = self._state, self.size.width
        head = len(state.telemetry_problems) + bool(efficiency_line(state, width))
        if state.nodes:
            return head + 1 + len(state.nodes) + sum(len(state.ranks_of(node)) for node in self.groups.unfolded)
        cuda = str(state.config.get("platform")) == "cuda"
        if count := len(state.gpus) or cuda * state.world_size:
            return head + (2 * count if count <= MOST_DETAILED else count + 1) + 1
        return head + max(1, len(rank_processes(state))) + 1

    def _by_node(
        self, state: RunState, views: list[GpuView], width: int, room: int
    ) -> tuple[list[Line], list[NodeScroll.Place]]:
        """Returns a line per node, unfolded ones with their devices; alone, the chosen one has the room beneath."""
        # Imported here: most runs are on one machine.
        from tuiapp.view.devices.node_rows import device_lines, node_lines, views_by_node

        of, listed = views_by_node(state, views), list(state.nodes.values())
        chosen = state.nodes.get(self.groups.cursor, listed[0])
        self._opened = chosen.number if self._alone and not self._lists_all else None
        if self._alone:
            unfolded = set() if self._lists_all else {chosen.number}
        else:
            # Where all devices have room, they are shown, and nodes fold.
            roomy = _all_fit(state, of, width, room)
            unfolded = set(state.nodes) ^ self.groups.unfolded if roomy else self.groups.unfolded
        heading, first_lines = node_lines(state, of, width, unfolded)
        derived = efficiency_line(state, width)
        lines, places = [derived, heading] if derived else [heading], []
        most = max(LEAST_LISTED, room // 3)
        if self._opened is not None and len(listed) > most:
            start = min(max(0, chosen.number - most // 2), len(listed) - most)
            listed = listed[start : start + most]
        for node in listed:
            opens = node.number in unfolded and not self._alone
            below = device_lines(state, node, of[node.number], width) if opens else []
            places.append(NodeScroll.Place(node.number, len(lines), 1 + len(below)))
            lines += [first_lines[node.number], *below]
        if self._lists_all and self._alone:
            lines.insert(0, line(Span("  ↑ ↓ choose a node · enter shows its devices", "muted")))
            for place in places:
                place.line += 1
        if self._opened is not None:
            hidden = len(state.nodes) - len(listed)
            more = f"  {hidden} more · " if hidden else "  "
            lines += [line(Span(f"{more}↑ ↓ choose the node shown · enter lists all · pgup pgdn scroll", "muted")), []]
            lines += self._of_node(state, chosen, of[chosen.number], width, room - len(lines))
        return lines, places

    def _of_node(self, state: RunState, node: NodeState, views: list[GpuView], width: int, room: int) -> list[Line]:
        if node.sample is None and not views:
            return [line(Span(f"node {node.number} has no samples yet" if state.is_live else "no samples", "muted"))]
        head = []
        if node.status in ("silent", "lost") and node.sample:
            text = f"node {node.number} is {node.status}: last sampled at {format_clock(node.sample.time)}"
            head = [line(Span(f"{SYMBOLS['warning']} {text}", "warning")), []]
        return [*head, *self._all(state, views, width, room - len(head), node.number)]

    def _toggle(self, node: int) -> None:
        """Folds a node; alone, shows it, or lists all."""
        if self._alone:
            self._lists_all = self._opened == node
            self._redraw()
        else:
            super()._toggle(node)

    @on(NodeScroll.Folded)
    def _draw_folds(self) -> None:
        self._draw()

    @property
    def _alone(self) -> bool:
        return self.has_class("-alone") or self.screen.has_class("-one")

    def _brief(self, state: RunState, views: list[GpuView], width: int, room: int) -> list[Line]:
        lines = _fitting(views, width, room) if views else process_rows(state, width, details=False)
        if derived := efficiency_line(state, width):
            lines.append(derived)
        spare = room - len(lines)
        if state.host and spare > 0:
            rows = host_rows(state.host, width, spare)
            short = rows if spare > len(rows) + 3 else [host_line(state.host, width), *full_rows(state.host, width)]
            lines += host_view(state.host, state.host_of(0)[1], width, spare) or short
        return lines

    def _all(self, state: RunState, views: list[GpuView], width: int, height: int, node: int = 0) -> list[Line]:
        # Imported here: they must not delay the first picture.
        from tuiapp.view.devices.large import large_view
        from tuiapp.view.devices.processes import process_rows_of, sort_keys

        is_here = self._is_here(state, node)
        if is_here:
            self._refresh_processes()
        read = self._seen if is_here else {}
        processes = process_rows_of(state, views, read, self.sort, node)
        self._keys = sort_keys(processes)
        if self.sort not in self._keys or not self._is_sorted:
            self.set_reactive(DevicePanel.sort, self._keys[0])
            processes = process_rows_of(state, views, read, self.sort, node)
        self.processes = processes
        return large_view(state, views, processes, width, height, self.sort, node)

    def _is_here(self, state: RunState, node: int) -> bool:
        """Whether the processes of this machine are those beside the samples' of a node."""
        if self.has_class("-alone"):
            return True
        host = state.nodes[node].host if state.nodes else state.started.host if state.started else ""
        return state.is_live and not state.replayed and host == gethostname()

    def _refresh_processes(self) -> None:
        """Reads the processes, now and then, and only while they are on screen."""
        now = monotonic()
        if now - self._read_at < LOOK_S or not (self.display and self.screen.is_current):
            return
        self._read_at = now
        self.run_worker(self._read_processes(), exclusive=True)

    async def _read_processes(self) -> None:
        if self._reader is None:
            # Imported here: it must not delay the first picture.
            from tuiapp.library.processes import ProcessReader

            self._reader = ProcessReader()
        self._seen = await to_thread(self._reader.read)
        # Meanwhile the screen may have been left.
        if self.query(TextView):
            self._draw()

    def sort_by_next(self) -> None:
        """Sorts the processes by the next key, the largest first."""
        if self.sort in self._keys:
            self._is_sorted = True
            self.sort = self._keys[(self._keys.index(self.sort) + 1) % len(self._keys)]

    def watch_sort(self) -> None:
        self._draw()


def _all_fit(state: RunState, of: dict[int, list[GpuView]], width: int, room: int) -> bool:
    """Returns whether all nodes and devices fit beneath the heading and the efficiency."""
    from tuiapp.view.devices.node_rows import device_lines

    least = room - 2 - len(of)
    if least < len(of):
        return False
    return sum(len(device_lines(state, state.nodes[node], of[node], width)) for node in state.nodes) <= least


def _fitting(views: list[GpuView], width: int, room: int) -> list[Line]:
    """Returns the GPUs in the most detailed form that leaves a line for the rest."""
    for form in (two_rows_each, one_row_each):
        if len(lines := form(views, width)) < room:
            return lines
    return two_a_row(views, width)
