"""Which nodes of a list are folded, and on which the cursor is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

MOST_OPEN = 16  # with more ranks, nodes are folded at first


@dataclass(slots=True)
class NodeGroups:
    cursor: int = 0
    toggled: set[int] = field(default_factory=set)  # those that the user folded or unfolded
    folded: bool = False  # whether the others are

    def is_open(self, node: int) -> bool:
        return self.folded == (node in self.toggled)

    def toggle(self, node: int) -> None:
        self.toggled ^= {node}

    def move(self, by: int, order: Sequence[int]) -> None:
        """Moves the cursor among the nodes in the order in which they are listed."""
        place = order.index(self.cursor) if self.cursor in order else 0
        self.cursor = order[min(max(0, place + by), len(order) - 1)]
