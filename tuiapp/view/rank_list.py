"""The ranks, and the nodes, side by side: which one lags, is slow, silent or lost; and each step time over the run."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal, TypeAlias

import numpy as np

from tuiapp.trainers.contract.metrics import LOSS, STEP_TIME
from tuiapp.trainers.state.condition import SLOW_SKEW, rank_condition
from tuiapp.trainers.state.curves import ALL
from tuiapp.trainers.state.rank_state import NodeStatus, Pace, RankState, letter
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.signs import Condition, Severity
from tuiapp.trainers.state.text import (
    MISSING,
    format_bytes,
    format_duration,
    format_metric,
    format_rate,
    format_seconds,
)
from tuiapp.view.devices.drawing import Line, Span, axis, cores, graph, labelled, line, network, samples_across, tiled
from tuiapp.view.devices.view import GpuView, device_places, letter_span
from tuiapp.view.heat import LABEL_CELLS, LEAST_MEMBERS, Member, heat_lines, heat_of, in_cells
from tuiapp.view.table import Column, in_order, or_missing

SortKey: TypeAlias = Literal["rank", "behind", "skew", "last report", "loss"]

SORT_KEYS: tuple[SortKey, ...] = ("rank", "behind", "skew", "last report", "loss")
"""Columns that ranks are sorted by, in the order of the sort key; all but the first have the worst on top."""


@dataclass(slots=True)
class RankRow:
    """A row is a rank beside the others; or a node, with the figures of its worst rank or of its host."""

    rank: RankState
    label: str  # its number; of a node whether it is unfolded, its number, and those of its ranks
    device: str  # with its letter: "a cuda:0"; of a node its host
    behind: int  # steps behind the leader
    skew: float | None  # step time over the ranks' median, less 1; None before its first step
    silent_s: float | None  # seconds since its last report; None before that, and when the run is over
    pace: Pace  # its present speed; empty while no rank makes progress, or the journal is read
    condition: Condition
    has_loss: bool  # whether it, or any rank before, has reported one
    examples_per_second: float | None
    cpu_percent: float | None  # of one core
    memory_bytes: int | None
    node: int | None = None
    network: str = ""
    rows: Sequence[RankRow] = ()
    """A node's ranks, in their order in the list."""


def rank_rows(state: RunState, now: float, sort: SortKey = "rank") -> list[RankRow]:
    """Compares the ranks of a run; `now` in seconds since the epoch."""
    leader = state.leader
    if leader is None:
        return []
    stall, reading = state.stall, state.reading is not None
    still = Pace() if stall is not None or reading else None
    paces = {rank.rank: (still or rank.pace).seconds_per_step for rank in state.ranks.values()}
    moving = [pace for pace in paces.values() if pace is not None]
    middle = median(moving) if moving else 0.0
    newest = max(rank.last_time for rank in state.ranks.values()) if len(state.ranks) > 1 else None
    places, has_loss = device_places(state), LOSS in state.curves.names
    rows = []
    for number in sorted(state.ranks):
        rank, pace = state.ranks[number], paces[number]
        behind = rank.behind(leader, now)
        skew = pace / middle - 1 if pace is not None and middle > 0 else None
        silent = max(0.0, now - rank.last_time) if rank.last_time and state.is_live and not reading else None
        present = still or rank.pace
        row = RankRow(
            rank,
            label=f"    {number}",
            device=f"{letter_span(places.get(number)).text} {rank.device or MISSING}",
            behind=behind,
            skew=skew,
            silent_s=silent,
            pace=present,
            condition=rank_condition(state, rank, behind, now, skew, stall, newest),
            has_loss=has_loss or bool(rank.loss_name),
            examples_per_second=present.examples_per_second,
            cpu_percent=rank.process.cpu_percent if rank.process else None,
            memory_bytes=rank.process.rss_bytes if rank.process else None,
        )
        rows.append(row)
    column = next(column for column in RANK_COLUMNS if column.title == sort)
    if column.key:
        return in_order(rows, column)
    # Of many rows the first ones are in sight.
    culprit = (state.first_failure or state.hang) if state.fault else None
    return sorted(rows, key=lambda row: culprit is None or row.rank.rank != culprit.rank)


def rank_members(state: RunState, ranks: Sequence[int], chosen: int | None = None) -> list[Member]:
    """Returns ranks as rows of a heat map: those stand out that do so in the list of ranks."""
    culprits, places = _culprits(state), device_places(state)
    return [
        Member(
            f"{rank} {letter(places[rank])}" if rank in places else str(rank),
            rank,
            state.node_of(rank) if state.nodes else None,
            culprits.get(rank),
            rank == chosen,
        )
        for rank in ranks
    ]


def gpu_members(state: RunState, views: Sequence[GpuView], chosen: int | None = None) -> list[Member]:
    """Returns GPUs as rows of a heat map: one stands out as its rank does, or by its own condition."""
    culprits, several = _culprits(state), len({view.gpu.sample.node for view in views}) > 1
    members = []
    for view in views:
        sample, ranks = view.gpu.sample, [rank.rank for rank in view.ranks]
        of_gpu = view.condition if view.condition is not None and view.condition.stands_out else None
        condition = next((culprits[rank] for rank in ranks if rank in culprits), of_gpu)
        label = f"n{sample.node} {sample.index}" if several else f"{view.mark.text} {sample.index}"
        members.append(Member(label, sample.index, sample.node if several else None, condition, chosen in ranks))
    return members


def _culprits(state: RunState) -> dict[int, Condition]:
    """Returns the conditions of ranks that stand out, or whose node does."""
    conditions = {row.rank.rank: row.condition for row in rank_rows(state, state.last_time)}
    if state.nodes:
        conditions = {rank: _on_node(state, state.node_of(rank), condition) for rank, condition in conditions.items()}
    return {rank: condition for rank, condition in conditions.items() if condition.stands_out}


_WEIGHTS: dict[Severity, int] = {"good": 0, "info": 1, "warning": 2, "error": 3}

CONDITIONS: dict[NodeStatus, Condition] = {
    "awaited": Condition("awaited", "info"),
    "silent": Condition("silent", "warning"),
    "lost": Condition("lost", "error"),
}
"""State of a node that is not connected → its sign."""


def _on_node(state: RunState, node: int, condition: Condition) -> Condition:
    """Returns the condition of ranks on a node that may have lost its connection."""
    if state.is_live and state.reading is None and condition.severity != "error":
        return CONDITIONS.get(state.nodes[node].status, condition)
    return condition


def node_rows(state: RunState, rows: Sequence[RankRow], unfolded: Container[int] = ()) -> list[RankRow]:
    """Groups ranks by node, in the order of each node's first: with sorted ranks the node of the worst comes first.

    The worst rank of a node is the one in the worst condition, else the slowest, else the one furthest behind.
    """
    groups: dict[int, list[RankRow]] = {}
    for row in rows:
        groups.setdefault(state.node_of(row.rank.rank), []).append(row)
    listed, digits = [], len(str(len(state.nodes) - 1))
    for number, group in groups.items():
        node, worst = state.nodes[number], max(group, key=_badness)
        condition, sample = _on_node(state, number, worst.condition), node.sample
        ranks = sorted(row.rank.rank for row in group)
        span = f"{ranks[0]}–{ranks[-1]}" if ranks[1:] else str(ranks[0])
        rates = [rate for row in group if (rate := row.examples_per_second) is not None]
        row = replace(
            worst,
            label=f"{'▾' if number in unfolded else '▸'} {number:<{digits}} {span}",
            device=node.host or MISSING,
            condition=condition,
            examples_per_second=sum(rates) if rates else None,
            cpu_percent=sample.cpu_percent * len(sample.cpu_percent_per_core or ()) if sample else None,
            memory_bytes=sample.memory_used_bytes if sample else None,
            node=number,
            network=network(sample),
            rows=group,
        )
        listed.append(row)
    return listed


def _badness(row: RankRow) -> tuple[int, float, int, int]:
    # A few steps behind may come from when ranks report.
    return _WEIGHTS[row.condition.severity], row.skew or 0.0, row.behind, -row.rank.rank


def _loss(row: RankRow) -> str:
    rank = row.rank
    return format_metric(rank.loss) if rank.loss is not None or not rank.loss_name else "NaN"


def _skew(skew: float) -> str:
    return f"{round(100 * skew):+d} %"


def _has_pace(row: RankRow) -> bool:
    return row.rank.pace.seconds_per_step is not None


def _is_sampled(row: RankRow) -> bool:
    return row.rank.process is not None


_COLUMNS: tuple[Column[RankRow], ...] = (
    Column("node", 12, lambda row: row.label, left=True),
    Column("rank", 4, lambda row: str(row.rank.rank)),
    Column("device", 8, lambda row: row.device, left=True, most=14),
    Column("host", 8, lambda row: row.device, left=True, most=14),
    Column("pid", 7, lambda row: or_missing(row.rank.pid), known=lambda row: row.rank.pid is not None),
    Column("step", 7, lambda row: or_missing(row.rank.step or None, "{:,}".format)),
    Column(
        *("loss", 7, _loss),
        known=lambda row: row.has_loss,
        key=lambda row: math.inf if row.rank.loss is None else row.rank.loss,
        falls=True,
    ),
    Column(
        *("ex/s", 7, lambda row: format_rate(row.examples_per_second)),
        known=lambda row: row.rank.pace.examples_per_second is not None,
    ),
    Column("step time", 9, lambda row: format_seconds(row.pace.seconds_per_step), known=_has_pace),
    Column("skew", 6, lambda row: or_missing(row.skew, _skew), known=_has_pace, key=lambda row: row.skew, falls=True),
    Column(
        *("behind", 6, lambda row: f"{row.behind:,}" if row.rank.step else MISSING),
        key=lambda row: row.behind,
        falls=True,
    ),
    Column("worst", 8, lambda row: f"rank {row.rank.rank}" if row.node is not None else "", left=True),
    Column("last report", 11, lambda row: format_duration(row.silent_s), key=lambda row: row.silent_s, falls=True),
    Column("state", 15, lambda row: str(row.condition), left=True, most=24),
    Column("network/s", 13, lambda row: row.network, left=True),
    Column("cores", 6, lambda row: or_missing(row.cpu_percent, cores), known=_is_sampled),
    Column("memory", 8, lambda row: format_bytes(row.memory_bytes), known=_is_sampled),
    Column("threads", 7, lambda row: or_missing(row.rank.process and row.rank.process.threads), known=_is_sampled),
)


def _ranked(*titles: str) -> list[Column[RankRow]]:
    """Returns columns, in the order above; the last of the titles is the first to be left out where not all fit."""
    return [replace(column, rank=titles.index(column.title)) for column in _COLUMNS if column.title in titles]


RANK_COLUMNS = _ranked(
    *("rank", "state", "step", "loss", "behind", "device", "skew", "ex/s", "step time", "last report", "pid", "cores"),
    *("memory", "threads"),
)

NODE_COLUMNS = _ranked(
    *(
        "node",
        "state",
        "step",
        "skew",
        "worst",
        "network/s",
        "behind",
        "host",
        "step time",
        "loss",
        "ex/s",
        "last report",
    ),
    *("cores", "memory"),
)
"""Columns where ranks are grouped by node."""


def columns_of(state: RunState, ranks: Sequence[RankRow], sort: SortKey) -> list[Column[RankRow]]:
    """Returns the columns for which some rank has data, before the first step all; the one sorted by stays longest."""
    columns = NODE_COLUMNS if state.nodes else RANK_COLUMNS
    shown = [column for column in columns if not state.step or any(map(column.known, ranks))]
    return [replace(column, rank=0) if column.title == sort else column for column in shown]


GAP = 3  # cells between two graphs
LEAST_CELLS, LEAST_ROWS = 34, 3
MOST_HIGH = 3  # lines of a row of a heat map
MOST_PERCENT = 98  # of the step times are within the scale


def rank_graphs(state: RunState, width: int, height: int, among: Sequence[int] | None = None) -> list[Line]:
    """Returns a title and a graph for each rank (`among` some) that reports step times, in at most `height` lines.

    Of five and more it is a heat map.
    """
    candidates = among if among is not None else state.curves.ranks(STEP_TIME)
    ranks = [rank for rank in candidates if rank != ALL and len(state.curves[rank, STEP_TIME])]
    if len(ranks) >= LEAST_MEMBERS:
        return _step_times(state, ranks, width, height)
    most = max(1, (width + GAP) // (LEAST_CELLS + GAP))
    stacks = min(-(-len(ranks) // most), height // (LEAST_ROWS + 1))
    if not stacks or state.step < 1:
        return []
    across = min(most, -(-len(ranks) // stacks))
    rows, cells = height // stacks - 1, (width - GAP * (across - 1)) // across
    ranks = ranks[: across * stacks]
    room = cells - len(format_seconds(1.0)) - 2
    samples = samples_across(room)
    # Of fewer steps than samples each fills several: they would have gaps.
    apart = min(samples, state.step)
    curves = {rank: state.curves[rank, STEP_TIME].reduce(apart, 1, state.step).mean for rank in ranks}
    wide = {
        rank: [float(curve[index * apart // samples]) for index in range(samples)] for rank, curve in curves.items()
    }
    values = {rank: [None if math.isnan(value) else value for value in curve] for rank, curve in wide.items()}
    times = sorted(value for curve in values.values() for value in curve if value is not None)
    # The first steps may take a hundred times as long: they are cut.
    top = 1.1 * times[len(times) * MOST_PERCENT // 100] if times else 0.0
    places = device_places(state)
    labels = axis(rows, f"{format_seconds(top):>{cells - room - 1}}")

    def block(rank: int) -> list[Line]:
        pace = state.ranks[rank].pace.step_s if rank in state.ranks else None
        device = places.get(rank)
        title = line(
            letter_span(device), Span(f" rank {rank}", "bold"), Span(f"  step time {format_seconds(pace)}", "muted")
        )
        drawn = graph(values[rank], room, rows, top)
        return [title, *labelled(labels, drawn, device if device is not None else "info")]

    return [row for tiles in tiled(list(map(block, ranks)), across, cells, GAP) for row in tiles]


def _step_times(state: RunState, ranks: Sequence[int], width: int, height: int) -> list[Line]:
    room = width - LABEL_CELLS - 1
    if height <= LEAST_ROWS or room < 1 or state.step < 1:
        return []
    reduced = [state.curves[rank, STEP_TIME].reduce(2 * room, 1, state.step) for rank in ranks]
    values = in_cells(np.stack([curve.mean for curve in reduced]), np.stack([curve.gaps for curve in reduced]))
    times = np.sort(values[np.isfinite(values)])
    if not len(times):
        return []
    top = float(times[len(times) * MOST_PERCENT // 100])
    low = min(float(times[0]), (1 - SLOW_SKEW) * top)
    heat = heat_of(rank_members(state, ranks), values, height - 1, format=format_seconds)
    return heat_lines("step time", heat, (low, top), min(MOST_HIGH, (height - 1) // len(heat.rows)))
