"""Shows whether a device is idle, hot or full: the GPUs (else the ranks' processes) and the host."""

from __future__ import annotations

from textual.content import Content
from textual.widget import Widget

from tuiapp.state.devices.efficiency import efficiency_line
from tuiapp.state.devices.gpu_matrix import foreign_processes, gpu_matrix, in_parts
from tuiapp.state.devices.gpu_rows import one_row_each, two_a_row, two_rows_each
from tuiapp.state.devices.host import host_line, host_rows
from tuiapp.state.devices.processes import process_rows, rank_processes
from tuiapp.state.devices.spans import Line, Span, line, stacked
from tuiapp.state.devices.view import GpuView, gpu_views
from tuiapp.state.run_state import RunState
from tuiapp.state.text import format_clock
from tuiapp.widgets.colors import MUTED, SEVERITY_STYLES, series_color
from tuiapp.widgets.text_panel import TextPanel


class DevicePanel(TextPanel):
    WAITING = "sampling…"
    LEAST_WIDTH = 34

    def lines(self, state: RunState, width: int) -> list[Content]:
        views = gpu_views(state)
        lines = self._all(state, views, width) if self._alone else self._brief(state, views, width)
        if not lines:
            lines = [line(Span(self.WAITING if state.is_live else "not available: the run has no samples", "muted"))]
        past = f"last sampled at {format_clock(state.host.time)}" if state.host and not state.is_live else ""
        if past != (self.border_subtitle or ""):
            self.border_subtitle = past
        if past and self._alone:
            # A small terminal has no room for a border.
            lines += [[], line(Span(past, "muted"))]
        return [self._styled(spans) for spans in [*_problems(state), *lines]]

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

    def _all(self, state: RunState, views: list[GpuView], width: int) -> list[Line]:
        derived = efficiency_line(state, width)
        return stacked(
            [
                [derived] if derived else [],
                one_row_each(views, width) if in_parts(views, width) else [],
                gpu_matrix(views, width),
                foreign_processes(views, width),
                process_rows(state, width, details=True),
                host_rows(state.host, width) if state.host else [],
            ]
        )

    def _most_lines(self) -> int:
        holder = self.parent.size.height if isinstance(self.parent, Widget) else 0
        return max(4, holder // 2 - 2 - len(_problems(self._state)))

    def _styled(self, spans: Line) -> Content:
        return Content.assemble(*((span.text, self._style(span)) for span in spans))

    def _style(self, span: Span) -> str:
        role = span.role
        if isinstance(role, int):
            color = series_color(role, dark=self.app.current_theme.dark)
            style = f"bold {color}" if span.text.isalpha() else color
        elif role in ("good", "warning", "error"):
            style = SEVERITY_STYLES[role]
        else:
            style = {"": "", "bold": "bold", "muted": MUTED, "info": "$primary"}[role]
        return f"{style} on $foreground 12%" if span.track else style


def _problems(state: RunState) -> list[Line]:
    return [line(Span(f"▲ {source}: {problem}", "warning")) for source, problem in state.telemetry_problems.items()]


def _fitting(views: list[GpuView], width: int, room: int) -> list[Line]:
    """Returns the GPUs in the most detailed form that leaves a line for the rest."""
    for form in (two_rows_each, one_row_each):
        if len(lines := form(views, width)) < room:
            return lines
    return two_a_row(views, width)
