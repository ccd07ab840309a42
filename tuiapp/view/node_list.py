"""The nodes side by side: whose ranks lag, which is slow, silent or lost; and which are unfolded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from trainers.state.condition import Condition, Severity
from trainers.state.node_state import NodeState, NodeStatus
from trainers.state.run_state import RunState
from tuiapp.view.rank_list import RankRow


@dataclass(slots=True)
class NodeGroups:
    cursor: int = 0
    unfolded: set[int] = field(default_factory=set)

    def toggle(self, node: int) -> None:
        self.unfolded ^= {node}

    def move(self, by: int, order: Sequence[int]) -> None:
        """Moves the cursor among the nodes in the order in which they are listed."""
        place = order.index(self.cursor) if self.cursor in order else 0
        self.cursor = order[min(max(0, place + by), len(order) - 1)]


_WEIGHTS: dict[Severity, int] = {"good": 0, "info": 1, "warning": 2, "error": 3}

CONDITIONS: dict[NodeStatus, Condition] = {
    "awaited": Condition("◌", "awaited", "info"),
    "silent": Condition("▲", "silent", "warning"),
    "lost": Condition("✖", "lost", "error"),
}
"""Of nodes that are not connected."""


@dataclass(frozen=True, slots=True)
class NodeRow:
    node: NodeState
    rows: list[RankRow]  # its ranks, in their order in the list
    worst: RankRow  # the rank in the worst condition, else the slowest, else the one furthest behind
    condition: Condition

    @property
    def examples_per_second(self) -> float | None:
        """Over its ranks."""
        rates = [rate for row in self.rows if (rate := row.pace.examples_per_second) is not None]
        return sum(rates) if rates else None


def node_rows(state: RunState, rows: Sequence[RankRow]) -> list[NodeRow]:
    """Groups ranks by node, in the order of each node's first: with sorted ranks the node of the worst comes first."""
    groups: dict[int, list[RankRow]] = {}
    for row in rows:
        groups.setdefault(state.node_of(row.rank.rank), []).append(row)
    found = []
    for number, group in groups.items():
        node, worst = state.nodes[number], max(group, key=_badness)
        condition = worst.condition
        if state.is_live and state.reading is None and condition.severity != "error":
            condition = CONDITIONS.get(node.status, condition)
        found.append(NodeRow(node, group, worst, condition))
    return found


def _badness(row: RankRow) -> tuple[int, float, int, int]:
    # A few steps behind may come from when ranks report.
    return _WEIGHTS[row.condition.severity], row.skew or 0.0, row.behind, -row.rank.rank
