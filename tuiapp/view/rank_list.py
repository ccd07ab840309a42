"""The ranks side by side: which one lags, is slow or silent; and each one's step time over the run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Literal, TypeAlias

from trainers.contract.metrics import STEP_TIME
from trainers.state.condition import Condition, rank_condition
from trainers.state.curves import ALL
from trainers.state.rank_state import Pace, RankState
from trainers.state.run_state import RunState
from trainers.state.text import format_seconds
from tuiapp.view.devices.drawing import Line, Role, Span, axis, beside, graph, line, samples_across
from tuiapp.view.devices.view import letter_span

SortKey: TypeAlias = Literal["rank", "behind", "skew", "heard", "loss"]

SORT_KEYS: tuple[SortKey, ...] = ("rank", "behind", "skew", "heard", "loss")
"""In the order of the sort key; all but the first have the worst on top."""


@dataclass(frozen=True, slots=True)
class RankRow:
    rank: RankState
    behind: int  # steps behind the leader
    skew: float | None  # step time over the ranks' median, less 1; None before its first step
    silent_s: float | None  # seconds since its last report; None before that, and when the run is over
    pace: Pace  # its present speed; empty while no rank makes progress, or the journal is read
    condition: Condition


def rank_rows(state: RunState, now: float, sort: SortKey = "rank") -> list[RankRow]:
    """Compares the ranks of a run; `now` in seconds since the epoch."""
    leader = state.leader
    if leader is None:
        return []
    stall, reading = state.stall, state.reading is not None
    still = Pace() if stall is not None or reading else None
    paces = {rank.rank: (still or rank.pace).seconds_per_step for rank in state.ranks.values()}
    known = [pace for pace in paces.values() if pace is not None]
    middle = median(known) if known else 0.0
    newest = max(rank.last_time for rank in state.ranks.values()) if len(state.ranks) > 1 else None
    rows = []
    for number in sorted(state.ranks):
        rank, pace = state.ranks[number], paces[number]
        behind = rank.behind(leader, now)
        skew = pace / middle - 1 if pace is not None and middle > 0 else None
        silent = max(0.0, now - rank.last_time) if rank.last_time and state.is_live and not reading else None
        condition = rank_condition(state, rank, behind, now, skew, stall, newest)
        rows.append(RankRow(rank, behind, skew, silent, still or rank.pace, condition))
    worst: dict[SortKey, Callable[[RankRow], float]] = {
        "behind": lambda row: -row.behind,
        "skew": lambda row: -(row.skew if row.skew is not None else -1.0),
        "heard": lambda row: -(row.silent_s if row.silent_s is not None else -1.0),
        "loss": lambda row: -(row.rank.loss if row.rank.loss is not None else float("inf")),
    }
    return sorted(rows, key=worst[sort]) if sort in worst else rows


GAP = 3  # cells between two graphs
LEAST_CELLS, LEAST_ROWS = 34, 3
MOST_PERCENT = 98  # of the step times are within the scale


def rank_graphs(state: RunState, width: int, height: int, among: range | None = None) -> list[Line]:
    """Returns a title and a graph for each rank (`among` some) that reports step times, in at most `height` lines."""
    candidates = among if among is not None else state.curves.ranks(STEP_TIME)
    ranks = [rank for rank in candidates if rank != ALL and len(state.curves[rank, STEP_TIME])]
    most = max(1, (width + GAP) // (LEAST_CELLS + GAP))
    stacks = min(-(-len(ranks) // most), height // (LEAST_ROWS + 1))
    if not stacks or state.step < 1:
        return []
    across = min(most, -(-len(ranks) // stacks))
    rows, cells = height // stacks - 1, (width - GAP * (across - 1)) // across
    ranks = ranks[: across * stacks]
    room = cells - len(format_seconds(1.0)) - 2
    curves = {rank: state.curves[rank, STEP_TIME].reduce(samples_across(room), 1, state.step).mean for rank in ranks}
    values = {rank: [None if math.isnan(one) else float(one) for one in curve] for rank, curve in curves.items()}
    known = sorted(one for curve in values.values() for one in curve if one is not None)
    # The first steps may take a hundred times as long: they are cut.
    top = 1.1 * known[len(known) * MOST_PERCENT // 100] if known else 0.0
    places = {rank: place for place, (rank, _) in reversed(list(enumerate(state.devices())))}
    labels = axis(rows, f"{format_seconds(top):>{cells - room - 1}}")

    def block(rank: int) -> list[Line]:
        pace = state.ranks[rank].pace.step_s if rank in state.ranks else None
        place = places.get(rank)
        title = line(
            letter_span(place), Span(f" rank {rank}", "bold"), Span(f"  step time {format_seconds(pace)}", "muted")
        )
        drawn = graph(values[rank], room, rows, top)
        ink: Role = place if place is not None else "info"
        return [title, *(line(Span(name, "muted"), Span(text, ink)) for name, text in zip(labels, drawn, strict=True))]

    lines: list[Line] = []
    for first in range(0, len(ranks), across):
        blocks = [block(rank) for rank in ranks[first : first + across]]
        lines += [beside(row, cells, GAP) for row in zip(*blocks, strict=True)]
    return lines
