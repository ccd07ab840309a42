"""The ranks side by side: which one lags, is slow or silent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Literal, TypeAlias

from tuiapp.state.condition import Condition, rank_condition
from tuiapp.state.rank_state import Pace, RankState
from tuiapp.state.run_state import RunState

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
