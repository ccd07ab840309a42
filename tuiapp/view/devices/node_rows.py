"""The devices of a run on several machines: a line per node with its GPUs and its host, its devices beneath it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from trainers.contract.events import HostSample
from trainers.state.node_state import NodeState
from trainers.state.readings import memory_percent
from trainers.state.run_state import RunState
from trainers.state.text import MISSING, fit, fitting_columns, plural
from tuiapp.view.devices.drawing import Line, Role, Span, celsius, line, network, pad, percent, share
from tuiapp.view.devices.host import host_line
from tuiapp.view.devices.processes import process_rows
from tuiapp.view.devices.view import GpuView, one_row_each
from tuiapp.view.node_list import CONDITIONS

MOST_NAME_CELLS = 20


def views_by_node(state: RunState, views: Sequence[GpuView]) -> dict[int, list[GpuView]]:
    """Returns the GPUs of each node."""
    of: dict[int, list[GpuView]] = {number: [] for number in state.nodes}
    for view in views:
        of.setdefault(view.gpu.sample.node, []).append(view)
    return of


def node_lines(
    state: RunState, of: Mapping[int, Sequence[GpuView]], width: int, unfolded: Collection[int]
) -> tuple[Line, dict[int, Line]]:
    """Returns a heading, and the line of each node; `of` has the GPUs of each."""
    digits = len(str(len(state.nodes) - 1))
    names = {number: f"{number:<{digits}} {node.host or MISSING}" for number, node in state.nodes.items()}
    name_cells = min(MOST_NAME_CELLS, 2 + max(map(len, names.values())))
    cells = {number: _cells(node, of[number]) for number, node in state.nodes.items()}
    known = {title for one in cells.values() for title, text in one.items() if text} | {"node"}
    states = max(len(one["state"]) for one in cells.values())
    sized = [one._replace(width={"node": name_cells, "state": states}.get(one.title, one.width)) for one in _COLUMNS]
    shown = _fitting([one for one in sized if one.title in known], width)
    tells = "state" not in known or any(one.title == "state" for one in shown)
    if not tells:
        # Beside the name its sign.
        sized[0] = sized[0]._replace(width=name_cells + 2)
        shown = _fitting([one for one in sized if one.title in known - {"state"}], width)
    heading = "  ".join(_cell(one, one.title) for one in shown)
    lines = {}
    for number, node in state.nodes.items():
        name, words = f"{'▾' if number in unfolded else '▸'} {names[number]}", cells[number]["state"]
        if tells:
            text = "  ".join(_cell(one, {**cells[number], "node": name}[one.title]) for one in shown)
        elif node.status in CONDITIONS:
            # Its figures are no longer true.
            text = f"{fit(name, name_cells)} {words}"
        else:
            name = f"{fit(name, name_cells)} {words[:1]}"
            text = "  ".join(_cell(one, {**cells[number], "node": name}[one.title]) for one in shown)
        lines[number] = line(Span(text.ljust(width), _role(node, of[number])))
    return line(Span(heading, "muted")), lines


def device_lines(state: RunState, node: NodeState, views: Sequence[GpuView], width: int) -> list[Line]:
    """Returns the lines of an unfolded node: its GPUs, or its ranks' processes, and its host."""
    lines = one_row_each(views, width) if views else process_rows(state, width, details=False, node=node.number)
    return [*lines, pad(host_line(node.sample, width), width)] if node.sample else lines


class _Column(NamedTuple):
    title: str
    width: int
    rank: int  # columns with the lowest numbers stay when not all fit
    left: bool = False


_COLUMNS = (
    _Column("node", 8, 0, left=True),
    _Column("GPUs", 5, 1),
    _Column("least", 5, 7),
    _Column("memory", 6, 6),
    _Column("hottest", 7, 8),
    _Column("CPU", 5, 3),
    _Column("host memory", 13, 5),
    _Column("network/s", 13, 2, left=True),
    _Column("load", 6, 9),
    _Column("state", 0, 4, left=True),
)


def _fitting(columns: Sequence[_Column], width: int) -> list[_Column]:
    return [columns[place] for place in fitting_columns([(one.rank, one.width) for one in columns], width)]


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


def _cell(column: _Column, text: str) -> str:
    return fit(text, column.width) if column.left else fit(text, column.width).strip().rjust(column.width)
