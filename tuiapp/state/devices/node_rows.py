"""The devices of a run on several machines: a line per node with its GPUs and its host, its devices beneath it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from trainers.contract.events import HostSample
from tuiapp.state.devices.figures import celsius, network, percent, share
from tuiapp.state.devices.gpu import memory_percent
from tuiapp.state.devices.gpu_rows import one_row_each, two_rows_each
from tuiapp.state.devices.host import host_line, host_rows
from tuiapp.state.devices.processes import process_rows
from tuiapp.state.devices.spans import Line, Role, Span, line, pad
from tuiapp.state.devices.view import GpuView
from tuiapp.state.node_groups import NodeGroups
from tuiapp.state.node_list import CONDITIONS
from tuiapp.state.node_state import NodeState
from tuiapp.state.run_state import RunState
from tuiapp.state.text import MISSING, fit, fitting_columns, plural

MOST_NAME_CELLS = 20
LARGE_HOST_ROWS = 5


class NodeLines(NamedTuple):
    node: int
    lines: list[Line]  # the first is the node's own


def node_lines(
    state: RunState, views: Sequence[GpuView], width: int, groups: NodeGroups, *, large: bool
) -> tuple[Line, list[NodeLines]]:
    """Returns a heading, and the lines of each node; `large`: those of unfolded nodes have room for all figures."""
    of: dict[int, list[GpuView]] = {number: [] for number in state.nodes}
    for view in views:
        of.setdefault(view.gpu.sample.node, []).append(view)
    digits = len(str(len(state.nodes) - 1))
    names = {number: f"{number:<{digits}} {node.host or MISSING}" for number, node in state.nodes.items()}
    cells = {number: _cells(node, of[number]) for number, node in state.nodes.items()}
    widths = {
        "node": min(MOST_NAME_CELLS, 2 + max(map(len, names.values()))),
        "state": max(len(one["state"]) for one in cells.values()),
    }
    columns = [(one, widths.get(one.title, one.width)) for one in _COLUMNS if _is_known(one, cells.values())]
    fits = fitting_columns([(one.rank, cells_wide) for one, cells_wide in columns], width)
    shown = [columns[place] for place in fits]
    heading = "  ".join(_cell(one, one.title, cells_wide) for one, cells_wide in shown)
    found = []
    for number, node in state.nodes.items():
        is_open = groups.is_open(number)
        texts = cells[number] | {"node": f"{'▾' if is_open else '▸'} {names[number]}"}
        words = "  ".join(_cell(one, texts[one.title], cells_wide) for one, cells_wide in shown)
        lines = [pad(line(Span(words, _role(node, of[number]))), width)]
        if is_open:
            lines += _devices(state, node, of[number], width, large=large)
        found.append(NodeLines(number, lines))
    return line(Span(heading, "muted")), found


def _devices(state: RunState, node: NodeState, views: list[GpuView], width: int, *, large: bool) -> list[Line]:
    """Returns the lines of an unfolded node: its GPUs, or its ranks' processes, and its host."""
    if views:
        lines = two_rows_each(views, width) if large else one_row_each(views, width)
    else:
        lines = process_rows(state, width, details=large, node=node.number)
    if node.sample is None:
        return lines
    host = host_rows(node.sample, width, LARGE_HOST_ROWS) if large else [pad(host_line(node.sample, width), width)]
    return [*lines, *host]


class _Column(NamedTuple):
    title: str
    width: int
    rank: int  # columns with the lowest numbers stay when not all fit
    left: bool = False


_COLUMNS = (
    _Column("node", 8, 0, left=True),
    _Column("GPUs", 5, 1),
    _Column("least", 5, 6),
    _Column("memory", 6, 5),
    _Column("hottest", 7, 7),
    _Column("CPU", 5, 2),
    _Column("host memory", 13, 4),
    _Column("network/s", 13, 3, left=True),
    _Column("load", 6, 8),
    _Column("state", 0, 2, left=True),
)


def _is_known(column: _Column, cells: Iterable[dict[str, str]]) -> bool:
    return column.title == "node" or any(one[column.title] for one in cells)


def _cells(node: NodeState, views: Sequence[GpuView]) -> dict[str, str]:
    busy = [value for view in views if (value := view.gpu.sample.utilization_percent) is not None]
    filled = [value for view in views if (value := memory_percent(view.gpu.sample)) is not None]
    degrees = [value for view in views if (value := view.gpu.sample.temperature_c) is not None]
    figures = {
        "GPUs": percent(fmean(busy)) if busy else "",
        "least": percent(min(busy)) if busy else "",
        "memory": percent(fmean(filled)) if filled else "",
        "hottest": celsius(max(degrees)) if degrees else "",
        "state": _state(node, views),
    }
    sample = node.sample
    tell: dict[str, Callable[[HostSample], str]] = {
        "CPU": lambda host: percent(host.cpu_percent),
        "host memory": lambda host: share(host.memory_used_bytes, host.memory_total_bytes),
        "network/s": network,
        "load": lambda host: f"{host.load_1m:.2f}",
    }
    return figures | {title: say(sample) if sample else "" for title, say in tell.items()}


def _state(node: NodeState, views: Sequence[GpuView]) -> str:
    if condition := CONDITIONS.get(node.status):
        return f"{condition.symbol} {condition.text}"
    weighty = [one for view in views if (one := view.condition) is not None and one.weight != "info"]
    if not weighty:
        return ""
    if len(weighty) > 1:
        return f"▲ {plural(len(weighty), 'GPU')}"
    return f"{weighty[0].symbol} GPU {weighty[0].word}"


def _role(node: NodeState, views: Sequence[GpuView]) -> Role:
    if node.status == "lost" or any(view.condition and view.condition.weight == "error" for view in views):
        return "error"
    text = _state(node, views)
    return "muted" if node.status == "awaited" else "warning" if text else ""


def _cell(column: _Column, text: str, width: int) -> str:
    return fit(text, width) if column.left else fit(text, width).strip().rjust(width)
