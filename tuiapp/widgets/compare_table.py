"""Runs side by side in text: the legend, the configuration keys that differ, and the results."""

from __future__ import annotations

from collections.abc import Container, Sequence
from string import ascii_lowercase

from textual.app import ComposeResult
from textual.containers import ScrollableContainer
from textual.content import Content
from textual.widgets import Static

from trainers.contract.summary import RunInfo
from tuiapp.state.comparison import Line, differing, results
from tuiapp.state.palette import series_color
from tuiapp.state.run_list import SYMBOLS
from tuiapp.state.text import MISSING, fit, format_percent, sanitize
from tuiapp.widgets.colors import MUTED

WIDEST = 20
"""Most cells of a value; `tuiapp compare --json` prints it whole."""


class CompareTable(ScrollableContainer):
    DEFAULT_CSS = """
    CompareTable {
        height: auto;
        background: $background;
        padding: 0 1;
        scrollbar-size-vertical: 1;

        Static { width: auto; min-width: 100%; height: auto; text-wrap: nowrap; }
    }
    """

    _read_out: Line | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="rows", markup=False)

    def show(
        self,
        infos: Sequence[RunInfo],
        reading: Sequence[float | None],
        hidden: Container[int],
        read_out: Line | None = None,
    ) -> None:
        """Shows runs; `reading` has the fraction read of each (None once complete), `hidden` the hidden indices."""
        outcome = results(infos)
        states = [
            f"{SYMBOLS[info.status]} {info.status}" if share is None else f"reading {format_percent(share)}"
            for info, share in zip(infos, reading, strict=True)
        ]
        keys = differing(infos)
        names = Line("run", tuple(sanitize(info.directory.run_id) for info in infos))
        here = [read_out] if read_out else []
        called = Line("name", tuple(sanitize(info.name, WIDEST) or MISSING for info in infos))
        columns = [
            *here,
            *([called] if any(info.name for info in infos) else []),
            Line("state", tuple(states)),
            *keys,
            *(line for line in outcome if line.name != "state"),
            names,
        ]
        widths = [min(max(len(c.name), *(len(value) for value in c.values)), WIDEST) for c in columns]
        widths[-1] = max(len(value) for value in names.values)
        cells = [
            Content.styled(fit(c.name, width), _style(c, [*here, *keys]))
            for c, width in zip(columns, widths, strict=True)
        ]
        lines = [Content.assemble("     ", Content("  ").join(cells))]
        for place in range(len(infos)):
            color = series_color(place, dark=self.app.current_theme.dark)
            legend = ("  ", "") if place in hidden else ("━ ", color)
            values = [_cut(c.values[place], width) for c, width in zip(columns, widths, strict=True)]
            text = "  ".join(values)
            style = MUTED if place in hidden or infos[place].status == "unreadable" else ""
            lines.append(Content.assemble((f"{ascii_lowercase[place]} ", f"bold {color}"), legend, " ", (text, style)))
        if not keys:
            lines.append(Content.styled("     they differ in no configuration key", MUTED))
        if read_out is not None and self._read_out is None:
            # The compared metric is the first column.
            self.scroll_home(animate=False)
        self._read_out = read_out
        self.query_one("#rows", Static).update(Content("\n").join(lines))


def _style(column: Line, keys: Sequence[Line]) -> str:
    return "bold $text-primary" if column in keys else MUTED


def _cut(value: str, width: int) -> str:
    """Keeps the end of a long value: it is usually a path."""
    return value.ljust(width) if len(value) <= width else f"…{value[len(value) - width + 1 :]}"
