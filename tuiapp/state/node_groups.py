"""Which nodes of a list are unfolded, and on which the cursor is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


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
