"""One row per rank: its device, its speed, and whether it lags; of a run on several machines in groups, a node each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widgets import Static

from trainers.contract.metrics import LOSS
from trainers.state.array_state import letter
from trainers.state.condition import Condition
from trainers.state.rank_state import RankState
from trainers.state.run_state import RunState
from trainers.state.text import (
    MISSING,
    fit,
    fitting_columns,
    format_bytes,
    format_duration,
    format_metric,
    format_rate,
    format_seconds,
)
from tuiapp.view.devices.drawing import Line, cores, network
from tuiapp.view.node_list import NodeRow, node_rows
from tuiapp.view.rank_list import SORT_KEYS, RankRow, SortKey, rank_rows
from tuiapp.widgets.colors import SEVERITY_STYLES, styled
from tuiapp.widgets.node_scroll import NodeScroll

WAITING = "no rank has started yet"

BESIDE_GRAPHS = 2
"""Lines for the heading, and between the table and the graphs."""

MOST_DRAWN = 64
"""With more ranks than this, only visible rows are drawn."""

LEAST_DEVICE_CELLS, MOST_DEVICE_CELLS = 8, 14
"""Limits of the column fitted to device names such as "a cuda:0" and "dx cuda:127"."""

LEAST_STATE_CELLS, MOST_STATE_CELLS = 15, 24
"""Limits of the column fitted to states such as "● checkpointing" and "✖ failed first: SIGKILL"."""


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    width: int
    rank: int
    """Columns with the lowest numbers stay when not all fit."""
    left: bool = False
    known: Callable[[RunState, RankState], bool] = lambda state, rank: True
    """Whether a rank has data for it."""


_COLUMNS = (
    _Column("rank", 4, 0),
    _Column("device", LEAST_DEVICE_CELLS, 4, left=True),
    _Column("pid", 7, 8, known=lambda state, rank: rank.pid is not None),
    _Column("step", 7, 1),
    _Column("loss", 7, 2, known=lambda state, rank: LOSS in state.curves.names or bool(rank.loss_name)),
    _Column("ex/s", 7, 6, known=lambda state, rank: rank.pace.examples_per_second is not None),
    _Column("step time", 9, 6, known=lambda state, rank: rank.pace.seconds_per_step is not None),
    _Column("skew", 6, 5, known=lambda state, rank: rank.pace.seconds_per_step is not None),
    _Column("behind", 6, 3),
    _Column("heard", 6, 7),
    _Column("state", LEAST_STATE_CELLS, 0, left=True),
    _Column("cores", 6, 9, known=lambda state, rank: rank.process is not None),
    _Column("memory", 8, 10, known=lambda state, rank: rank.process is not None),
    _Column("threads", 7, 11, known=lambda state, rank: rank.process is not None),
)

_NODE_COLUMNS = (
    _Column("node", 12, 0, left=True),
    _Column("host", LEAST_DEVICE_CELLS, 6, left=True),
    _Column("step", 7, 1),
    _Column("loss", 7, 8, known=lambda state, rank: LOSS in state.curves.names or bool(rank.loss_name)),
    _Column("ex/s", 7, 9, known=lambda state, rank: rank.pace.examples_per_second is not None),
    _Column("step time", 9, 7, known=lambda state, rank: rank.pace.seconds_per_step is not None),
    _Column("skew", 6, 2, known=lambda state, rank: rank.pace.seconds_per_step is not None),
    _Column("behind", 6, 5),
    _Column("worst", 8, 3, left=True),
    _Column("heard", 6, 10),
    _Column("state", LEAST_STATE_CELLS, 0, left=True),
    _Column("network/s", 13, 4, left=True),
    _Column("cores", 6, 11, known=lambda state, rank: rank.process is not None),
    _Column("memory", 8, 12, known=lambda state, rank: rank.process is not None),
)
"""Where ranks are grouped by node: a node's row has the figures of its worst rank, or of its host."""


class RankTable(Vertical):
    DEFAULT_CSS = """
    RankTable {
        background: $background;
        padding: 0 1;

        #heading { dock: top; height: 1; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; }
        NodeScroll { height: auto; max-height: 1fr; scrollbar-size-vertical: 1; }
        #graphs { height: auto; display: none; padding-top: 1; text-wrap: nowrap; }
        #rows { height: auto; text-wrap: nowrap; text-overflow: ellipsis; }
    }
    """

    sort: reactive[SortKey] = reactive("rank")
    chosen: reactive[int | None] = reactive(None)
    """The rank shown in charts and log; None for all."""

    @dataclass
    class Chosen(Message):
        """The user clicked a rank."""

        rank: int

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._state = RunState()
        self._now = 0.0
        self._order: list[RankRow | NodeRow] = []
        self._shown: Content | None = None

    def compose(self) -> ComposeResult:
        yield Static(WAITING, id="heading", markup=False)
        with NodeScroll():
            yield Static(id="rows", markup=False)
        yield Static(id="graphs", markup=False)

    def on_mount(self) -> None:
        self.watch(self.query_one(NodeScroll), "scroll_y", self._scrolled, init=False)

    def show(self, state: RunState, now: float) -> None:
        self._state, self._now = state, now
        self._draw()

    def sort_by_next(self) -> None:
        """Sorts by the next key, worst first."""
        self.sort = SORT_KEYS[(SORT_KEYS.index(self.sort) + 1) % len(SORT_KEYS)]

    def watch_sort(self) -> None:
        self._draw()

    def watch_chosen(self) -> None:
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def on_click(self, event: events.Click) -> None:
        rows = self.query_one("#rows", Static)
        place = event.screen_y - rows.region.y
        if event.widget is rows and 0 <= place < len(self._order) and isinstance(row := self._order[place], RankRow):
            self.post_message(self.Chosen(row.rank.rank))

    @on(NodeScroll.Folded)
    def _draw_folds(self) -> None:
        self._draw()

    def _scrolled(self) -> None:
        if len(self._order) > MOST_DRAWN:
            self._draw()

    def _draw(self) -> None:
        if not self.is_mounted or not (self._state.ranks or self._order):
            return
        state, rows = self._state, self._rows()
        letters = {device[0]: letter(index) for index, device in reversed(list(enumerate(state.devices())))}
        names = [
            row.node.host or MISSING
            if isinstance(row, NodeRow)
            else f"{letters.get(row.rank.rank, ' ')} {row.rank.device or MISSING}"
            for row in rows
        ]
        # A cell for the chosen rank's mark, and one for the scroll bar.
        known = [replace(one, rank=0) if one.title == self.sort else one for one in _known(state)]
        columns = _fitting(self.content_size.width - 2, names, [_state(row) for row in rows], known)
        heading = _heading(columns, self.sort) if rows else Content(WAITING)
        self.query_one("#heading", Static).update(heading, layout=False)
        first, last = self._in_sight(len(rows))
        lines = [
            self._line(row, name, columns) if first <= place <= last else Content("")
            for place, (row, name) in enumerate(zip(rows, names, strict=True))
        ]
        content = Content("\n").join(lines)
        if self._shown is None or not content.is_same(self._shown):
            self._shown = content
            self.query_one("#rows", Static).update(content, layout=len(rows) != len(self._order))
        self._order = rows
        self._draw_graphs(len(rows))

    def _rows(self) -> list[RankRow | NodeRow]:
        """Returns the ranks, on several machines each node followed by its ranks unless it is folded."""
        ranks, scroll = rank_rows(self._state, self._now, self.sort), self.query_one(NodeScroll)
        rows: list[RankRow | NodeRow] = []
        places = []
        if not self._state.nodes:
            rows += ranks
        else:
            for node in node_rows(self._state, ranks):
                shown = node.rows if node.node.number in scroll.groups.unfolded else []
                places.append(NodeScroll.Place(node.node.number, len(rows), 1 + len(shown)))
                rows += [node, *shown]
        scroll.place(places)
        return rows

    def _line(self, row: RankRow | NodeRow, name: str, columns: list[_Column]) -> Content:
        if isinstance(row, RankRow):
            return _row(_cells(row, name), row.condition, columns, chosen=row.rank.rank == self.chosen)
        scroll, number = self.query_one(NodeScroll), row.node.number
        cells = _cells_of_node(row, name, len(self._state.nodes), is_open=number in scroll.groups.unfolded)
        drawn = _row(cells, row.condition, columns)
        return drawn.stylize("reverse") if scroll.is_at(number) else drawn

    def _draw_graphs(self, count: int) -> None:
        """Fills the room beneath the table, where the panel is large: of several nodes with the ranks of one."""
        graphs = self.query_one("#graphs", Static)
        large = self.display and self.screen.has_class("-one")
        room = self.content_size.height - count - BESIDE_GRAPHS if large else 0
        lines: list[Line] = []
        if room > 0:
            # Imported here: it must not delay the first picture.
            from tuiapp.view.rank_list import rank_graphs

            node = self.query_one(NodeScroll).groups.cursor
            among = self._state.ranks_of(node) if self._state.nodes else None
            lines = rank_graphs(self._state, self.content_size.width, room, among)
        graphs.display = bool(lines)
        if lines:
            dark = self.app.current_theme.dark
            graphs.update(Content("\n").join(styled(one, dark=dark) for one in lines))

    def _in_sight(self, count: int) -> tuple[int, int]:
        """Returns the first and last row to draw."""
        if count <= MOST_DRAWN:
            return 0, count
        top = self.query_one(NodeScroll).scroll_offset.y
        return top - MOST_DRAWN // 2, top + MOST_DRAWN


def _heading(columns: list[_Column], sort: SortKey) -> Content:
    titles = [fit(c.title, c.width) if c.left else c.title.rjust(c.width) for c in columns]
    marks = ["▾ " if c.title == sort and sort != "rank" else "  " for c in columns]
    return Content((" " + "".join(title + mark for title, mark in zip(titles, marks, strict=True))).rstrip())


def _known(state: RunState) -> list[_Column]:
    """Returns the columns for which some rank has data; before the first step all."""
    ranks, columns = state.ranks.values(), _NODE_COLUMNS if state.nodes else _COLUMNS
    return [column for column in columns if not state.step or any(column.known(state, rank) for rank in ranks)]


def _fitting(
    width: int, devices: Iterable[str], states: Iterable[str], columns: Iterable[_Column] = _COLUMNS
) -> list[_Column]:
    """Returns the columns that fit, with those of devices and states sized to their contents."""
    widths = {
        "device": (cells := _longest(devices, LEAST_DEVICE_CELLS, MOST_DEVICE_CELLS)),
        "host": cells,
        "state": _longest(states, LEAST_STATE_CELLS, MOST_STATE_CELLS),
    }
    sized = [replace(column, width=widths.get(column.title, column.width)) for column in columns]
    return [sized[place] for place in fitting_columns([(one.rank, one.width) for one in sized], width)]


def _longest(texts: Iterable[str], least: int, most: int) -> int:
    return min(most, max(least, max(map(len, texts), default=0)))


def _state(row: RankRow | NodeRow) -> str:
    return f"{row.condition.symbol} {row.condition.text}"


def _cells_of_node(row: NodeRow, host: str, nodes: int, *, is_open: bool) -> dict[str, str]:
    ranks, sample = sorted(one.rank.rank for one in row.rows), row.node.sample
    span = f"{ranks[0]}–{ranks[-1]}" if ranks[1:] else str(ranks[0])
    figures = _cells(row.worst, "")
    own = {
        "node": f"{'▾' if is_open else '▸'} {row.node.number:<{len(str(nodes - 1))}} {span}",
        "host": host,
        "ex/s": format_rate(row.examples_per_second),
        "worst": f"rank {row.worst.rank.rank}",
        "state": _state(row),
        "network/s": network(sample),
        "cores": cores(sample.cpu_percent * len(sample.cpu_percent_per_core or ())) if sample else MISSING,
        "memory": format_bytes(sample.memory_used_bytes if sample else None),
    }
    return figures | own


def _cells(row: RankRow, device: str) -> dict[str, str]:
    rank = row.rank
    process = rank.process
    return {
        "rank": str(rank.rank),
        "node": f"    {rank.rank}",
        "host": device,
        "device": device,
        "pid": str(rank.pid) if rank.pid is not None else MISSING,
        "step": f"{rank.step:,}" if rank.step else MISSING,
        "loss": format_metric(rank.loss) if rank.loss is not None or not rank.loss_name else "not fin",
        "ex/s": format_rate(row.pace.examples_per_second),
        "step time": format_seconds(row.pace.seconds_per_step),
        "skew": _skew(row.skew),
        "behind": f"{row.behind:,}" if rank.step else MISSING,
        "heard": format_duration(row.silent_s),
        "state": _state(row),
        "cores": cores(process.cpu_percent) if process and process.cpu_percent is not None else MISSING,
        "memory": format_bytes(process.rss_bytes if process else None),
        "threads": str(process.threads) if process else MISSING,
        "worst": "",
        "network/s": "",
    }


def _skew(skew: float | None) -> str:
    return f"{round(100 * skew):+d} %" if skew is not None else MISSING


def _row(cells: dict[str, str], condition: Condition, columns: list[_Column], *, chosen: bool = False) -> Content:
    style = SEVERITY_STYLES[condition.severity]
    parts: list[Content] = []
    for column in columns:
        text = cells[column.title]
        text = fit(text, column.width) if column.left else fit(text, column.width).strip().rjust(column.width)
        stands_out = column.title == "state" or condition.severity in ("warning", "error")
        parts.append(Content.styled(text, style if stands_out else ""))
    line = Content("  ").join(parts)
    return Content.assemble(("▸", "bold"), line.stylize("bold")) if chosen else Content.assemble(" ", line)
