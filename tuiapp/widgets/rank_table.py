"""One row per rank: where it is, how fast, and whether it lags."""

from __future__ import annotations

from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from tuiapp.state.array_state import letter
from tuiapp.state.condition import Condition, rank_condition
from tuiapp.state.rank_state import RankState
from tuiapp.state.run_facts import RunFacts
from tuiapp.state.text import (
    MISSING,
    fit,
    format_bytes,
    format_metric,
    format_rate,
    format_seconds,
)
from tuiapp.widgets.palette import SEVERITY_STYLES


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    width: int
    rank: int
    """Which columns stay when there is no room for all: the lowest numbers."""
    left: bool = False


_COLUMNS = (
    _Column("rank", 4, 0),
    _Column("device", 8, 3, left=True),
    _Column("pid", 7, 7),
    _Column("step", 7, 1),
    _Column("loss", 7, 2),
    _Column("ex/s", 7, 4),
    _Column("step time", 9, 6),
    _Column("behind", 6, 5),
    _Column("state", 15, 0, left=True),
    _Column("CPU", 6, 8),
    _Column("memory", 8, 9),
    _Column("threads", 7, 10),
)


class RankTable(Vertical):
    """The ranks of a run."""

    DEFAULT_CSS = """
    RankTable {
        background: $surface;
        padding: 0 1;

        #heading { height: 1; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; }
        VerticalScroll { height: auto; max-height: 1fr; }
        #rows { height: auto; text-wrap: nowrap; text-overflow: ellipsis; }
    }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._state = RunFacts()
        self._now = 0.0
        self._height = 0
        """Lines on show: only when they change is a layout due."""

    def compose(self) -> ComposeResult:  # noqa: D102
        yield Static("no rank has started yet", id="heading", markup=False)
        with VerticalScroll():
            yield Static(id="rows", markup=False)

    def show(self, state: RunFacts, now: float) -> None:
        """Show the ranks as they stand at that time."""
        self._state, self._now = state, now
        if state.ranks:
            self._draw()

    def on_resize(self) -> None:
        """Choose the columns anew."""
        if self._state.ranks:
            self._draw()

    def _draw(self) -> None:
        state = self._state
        columns = _fitting(self.content_size.width - 2)
        titles = [fit(c.title, c.width) if c.left else c.title.rjust(c.width) for c in columns]
        self.query_one("#heading", Static).update(Content("  ".join(titles)), layout=False)
        letters = {device[0]: letter(index) for index, device in reversed(list(enumerate(state.devices())))}
        leader = state.leader
        assert leader is not None
        lines = []
        for number in sorted(state.ranks):
            rank = state.ranks[number]
            behind = rank.behind(leader, self._now)
            condition = rank_condition(state, rank, behind, self._now)
            lines.append(_row(rank, behind, condition, letters.get(number, " "), columns))
        self.query_one("#rows", Static).update(Content("\n").join(lines), layout=len(lines) != self._height)
        self._height = len(lines)


def _fitting(width: int) -> list[_Column]:
    used, kept = 0, set()
    for column in sorted(_COLUMNS, key=lambda column: column.rank):
        if used + column.width > width:
            break
        used += column.width + 2
        kept.add(column)
    return [column for column in _COLUMNS if column in kept]


def _row(rank: RankState, behind: int, condition: Condition, name: str, columns: list[_Column]) -> Content:
    cells = {
        "rank": str(rank.rank),
        "device": f"{name} {rank.device or MISSING}",
        "pid": str(rank.pid) if rank.pid is not None else MISSING,
        "step": f"{rank.step:,}" if rank.step else MISSING,
        "loss": format_metric(rank.loss) if rank.loss is not None or not rank.pace.has_steps else "not fin",
        "ex/s": format_rate(rank.pace.examples_per_second),
        "step time": format_seconds(rank.pace.seconds_per_step),
        "behind": f"{behind:,}" if rank.step else MISSING,
        "state": f"{condition.symbol} {condition.text}",
        "CPU": f"{rank.cpu_percent:.0f} %" if rank.cpu_percent is not None else MISSING,
        "memory": format_bytes(rank.rss_bytes),
        "threads": str(rank.threads) if rank.threads is not None else MISSING,
    }
    style = SEVERITY_STYLES[condition.severity]
    parts: list[Content] = []
    for column in columns:
        text = cells[column.title]
        text = fit(text, column.width) if column.left else fit(text, column.width).strip().rjust(column.width)
        stands_out = column.title == "state" or condition.severity in ("warning", "error")
        parts.append(Content.styled(text, style if stands_out else ""))
    return Content("  ").join(parts)
