"""The devices of a run on several machines: a line per node with its GPUs and its host, its devices beneath it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

from tuiapp.trainers.contract.events import DeviceSample, HostSample
from tuiapp.trainers.state.rank_state import NodeState
from tuiapp.trainers.state.readings import memory_percent
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.signs import SYMBOLS
from tuiapp.trainers.state.text import MISSING, plural
from tuiapp.view.devices.drawing import Line, Role, Span, celsius, line, network, pad, percent, share
from tuiapp.view.devices.host import host_line
from tuiapp.view.devices.processes import process_rows
from tuiapp.view.devices.view import GpuView, one_row_each
from tuiapp.view.rank_list import CONDITIONS
from tuiapp.view.table import GAP, Column, fitting, nonempty, sized


class _Row(NamedTuple):
    node: NodeState
    views: Sequence[GpuView]
    label: str  # whether it is unfolded, its number and host

    def over_gpus(
        self,
        join: Callable[[Iterable[float]], float],
        figure: Callable[[DeviceSample], float | None],
        words: Callable[[float], str] = percent,
    ) -> str:
        """Returns the GPUs' values of a figure, joined into one; "" where no GPU has one."""
        values = [value for view in self.views if (value := figure(view.gpu.sample)) is not None]
        return words(join(values)) if values else ""

    def of_host(self, words: Callable[[HostSample], str]) -> str:
        return words(self.node.sample) if self.node.sample else ""

    @property
    def state(self) -> str:
        """What is wrong with the node or its GPUs, with its sign."""
        if condition := CONDITIONS.get(self.node.status):
            return str(condition)
        weighty = [view.condition for view in self.views if view.condition and view.condition.severity != "info"]
        if len(weighty) > 1:
            return f"{SYMBOLS['warning']} {plural(len(weighty), 'GPU')}"
        return f"{weighty[0].symbol} GPU {weighty[0].word}" if weighty else ""

    @property
    def role(self) -> Role:
        weights = [view.condition.severity for view in self.views if view.condition]
        if self.node.status == "lost" or "error" in weights:
            return "error"
        return "muted" if self.node.status == "awaited" else "warning" if self.state else ""


def _memory(host: HostSample) -> str:
    return share(host.memory_used_bytes, host.memory_total_bytes)


_NODE: Column[_Row] = Column("node", 0, lambda row: row.label, left=True, most=20)
_COLUMNS: tuple[Column[_Row], ...] = (
    _NODE,
    Column("GPUs", 5, lambda row: row.over_gpus(fmean, lambda gpu: gpu.utilization_percent), 1),
    Column("least", 5, lambda row: row.over_gpus(min, lambda gpu: gpu.utilization_percent), 7),
    Column("memory", 6, lambda row: row.over_gpus(fmean, memory_percent), 6),
    Column("hottest", 7, lambda row: row.over_gpus(max, lambda gpu: gpu.temperature_c, celsius), 8),
    Column("CPU", 5, lambda row: row.of_host(lambda host: percent(host.cpu_percent)), 3),
    Column("host memory", 13, lambda row: row.of_host(_memory), 5),
    Column("network/s", 13, lambda row: row.of_host(network), 2, left=True),
    Column("load", 6, lambda row: row.of_host(lambda host: f"{host.load_1m:.2f}"), 9),
    Column("state", 0, lambda row: row.state, 4, left=True, most=99),
)


def views_by_node(state: RunState, views: Sequence[GpuView]) -> dict[int, list[GpuView]]:
    """Returns the GPUs of each node."""
    by_node: dict[int, list[GpuView]] = {number: [] for number in state.nodes}
    for view in views:
        by_node.setdefault(view.gpu.sample.node, []).append(view)
    return by_node


def node_lines(
    state: RunState, of: Mapping[int, Sequence[GpuView]], width: int, unfolded: Collection[int]
) -> tuple[Line, dict[int, Line]]:
    """Returns a heading, and the line of each node; `of` has the GPUs of each."""
    digits = len(str(len(state.nodes) - 1))
    rows = [
        _Row(node, of[number], f"{'▾' if number in unfolded else '▸'} {number:<{digits}} {node.host or MISSING}")
        for number, node in state.nodes.items()
    ]
    columns, name = nonempty(_COLUMNS, rows), sized(_NODE, rows)
    shown = fitting(columns, width, rows)
    # Whether the state is beside the figures, if any node has one to tell.
    tells = [column.title for column in columns][-1:] != ["state"] or "state" in [column.title for column in shown]
    if not tells:
        # Beside the name its sign.
        marked = replace(name, width=name.width + 2, cell=lambda row: f"{name.draw(row)} {row.state[:1]}")
        shown = fitting([marked, *columns[1:-1]], width, rows)
    lines = {}
    for row in rows:
        text = GAP.join(column.draw(row) for column in shown)
        if not tells and row.node.status in CONDITIONS:
            # Its figures are no longer true.
            text = f"{name.draw(row)} {row.state}"
        lines[row.node.number] = line(Span(text.ljust(width), row.role))
    return line(Span(GAP.join(column.align(column.title) for column in shown), "muted")), lines


def device_lines(state: RunState, node: NodeState, views: Sequence[GpuView], width: int) -> list[Line]:
    """Returns the lines of an unfolded node: its GPUs, or its ranks' processes, and its host."""
    lines = one_row_each(views, width) if views else process_rows(state, width, details=False, node=node.number)
    return [*lines, pad(host_line(node.sample, width), width)] if node.sample else lines
