"""One row per rank: its device, its speed, and whether it lags; of a run on several machines in groups, a node each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive

from tuiapp.trainers.state.run_state import RunState
from tuiapp.view.devices.drawing import Line
from tuiapp.view.rank_list import SORT_KEYS, RankRow, SortKey, columns_of, node_rows, rank_graphs, rank_rows
from tuiapp.view.table import GAP, Column, fitting
from tuiapp.widgets.colors import SEVERITY_STYLES, styled
from tuiapp.widgets.node_scroll import NodeScroll
from tuiapp.widgets.text_view import TextView

WAITING = "no rank has started yet"

BESIDE_GRAPHS = 2
"""Lines for the heading, and between the table and the graphs."""

MOST_DRAWN = 64
"""With more ranks than this, only visible rows are drawn."""


class RankTable(Vertical):
    DEFAULT_CSS = """
    RankTable {
        background: $background;
        padding: 0 1;

        #heading { dock: top; height: 1; color: $text-muted; }
        NodeScroll { height: auto; max-height: 1fr; scrollbar-size-vertical: 1; }
        #graphs { display: none; margin-top: 1; }
    }
    """

    sort: reactive[SortKey] = reactive("rank")
    chosen: reactive[int | None] = reactive(None)
    """The rank shown in charts and log; None for all."""

    @dataclass
    class Chosen(Message):
        """The user clicked a rank."""

        rank: int

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._state = RunState()
        self._clock = clock
        self._order: list[RankRow] = []

    def compose(self) -> ComposeResult:
        yield TextView(Content(WAITING), id="heading")
        with NodeScroll():
            yield TextView(id="rows")
        yield TextView(id="graphs")

    def on_mount(self) -> None:
        self.watch(self.query_one(NodeScroll), "scroll_y", self._scrolled, init=False)

    def show(self, state: RunState) -> None:
        self._state = state
        self._draw()

    @property
    def wanted_height(self) -> int:
        """Lines in which all rows are to be seen, beneath the heading."""
        expected = 0 if self._state.nodes else self._state.world_size
        return 1 + max(len(self._order), expected)

    def sort_by_next(self) -> None:
        """Sorts by the next key, worst first."""
        self.sort = SORT_KEYS[(SORT_KEYS.index(self.sort) + 1) % len(SORT_KEYS)]

    def on_click(self, event: events.Click) -> None:
        rows = self.query_one("#rows", TextView)
        index = event.screen_y - rows.region.y
        if event.widget is rows and 0 <= index < len(self._order) and (row := self._order[index]).node is None:
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
        ranks = rank_rows(self._state, self._clock(), self.sort)
        rows = self._rows(ranks)
        # A cell for the chosen rank's mark, and one for the scroll bar.
        columns = fitting(columns_of(self._state, ranks, self.sort), self.content_size.width - 2, rows)
        heading = _heading(columns, self.sort) if rows else Content(WAITING)
        self.query_one("#heading", TextView).update([heading])
        first, last = 0, len(rows)
        if len(rows) > MOST_DRAWN:
            first = self.query_one(NodeScroll).scroll_offset.y
            last = first + self.content_size.height
        lines = [self._line(row, columns) if first <= index <= last else Content("") for index, row in enumerate(rows)]
        self.query_one("#rows", TextView).update(lines)
        self._order = rows
        self._draw_graphs(len(rows))

    watch_sort = watch_chosen = on_resize = _draw

    def _rows(self, ranks: Sequence[RankRow]) -> list[RankRow]:
        """Returns the ranks, on several machines each node followed by its ranks unless it is folded."""
        scroll = self.query_one(NodeScroll)
        unfolded = scroll.groups.unfolded
        rows, places = list(ranks) if not self._state.nodes else [], list[NodeScroll.Place]()
        for row in node_rows(self._state, ranks, unfolded) if self._state.nodes else ():
            assert row.node is not None
            shown = [row, *(row.rows if row.node in unfolded else ())]
            places.append(NodeScroll.Place(row.node, len(rows), len(shown)))
            rows += shown
        scroll.place(places)
        return rows

    def _line(self, row: RankRow, columns: list[Column[RankRow]]) -> Content:
        style = SEVERITY_STYLES[row.condition.severity]
        is_at = row.node is not None and self.query_one(NodeScroll).is_at(row.node)
        # At the cursor the state's colour would be that of its background.
        colored = {column.title for column in columns} if row.condition.stands_out else set() if is_at else {"state"}
        cells = [Content.styled(column.draw(row), style if column.title in colored else "") for column in columns]
        line = Content(GAP).join(cells)
        if row.node is not None:
            return Content.assemble(" ", line).stylize("reverse" if is_at else "")
        if row.rank.rank == self.chosen:
            return Content.assemble(("▸", "bold"), line.stylize("bold"))
        return Content.assemble(" ", line)

    def _draw_graphs(self, count: int) -> None:
        """Fills the room beneath the table, where the panel is large: of several nodes with the ranks of one."""
        graphs = self.query_one("#graphs", TextView)
        large = self.display and self.screen.has_class("-one")
        room = self.content_size.height - count - BESIDE_GRAPHS if large else 0
        lines: list[Line] = []
        if room > 0:
            node = self.query_one(NodeScroll).groups.cursor
            among = self._state.ranks_of(node) if self._state.nodes else None
            lines = rank_graphs(self._state, self.content_size.width, room, among)
        graphs.display = bool(lines)
        if lines:
            dark = self.app.current_theme.dark
            graphs.update([styled(line, dark=dark) for line in lines])


def _heading(columns: Sequence[Column[RankRow]], sort: SortKey) -> Content:
    titles = [column.align(column.title) + ("▾ " if column.title == sort != "rank" else GAP) for column in columns]
    return Content(f" {''.join(titles)}".rstrip())
