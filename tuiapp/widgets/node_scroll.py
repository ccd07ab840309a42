"""Scrolls lines in groups that fold: one for each node of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.geometry import Region
from textual.message import Message

from tuiapp.widgets.text_view import TextView


@dataclass(slots=True)
class NodeGroups:
    """Which nodes are unfolded, and where the cursor is."""

    cursor: int = 0
    unfolded: set[int] = field(default_factory=set)

    def toggle(self, node: int) -> None:
        self.unfolded ^= {node}

    def move(self, by: int, order: Sequence[int]) -> None:
        """Moves the cursor among the nodes in the order in which they are listed."""
        index = order.index(self.cursor) if self.cursor in order else 0
        self.cursor = order[min(max(0, index + by), len(order) - 1)]


class NodeScroll(VerticalScroll):
    """With nodes, the arrow keys move a cursor among them, and Enter folds; without, it just scrolls."""

    BINDING_GROUP_TITLE = "Nodes"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "fold", "Choose or fold a node", show=False, id="run.fold", key_display="↑ ↓ enter")
    ]

    class Folded(Message):
        """The cursor has moved, or a node was folded or unfolded: the lines are to be drawn again."""

    @dataclass
    class Place:
        """Where a node's lines are."""

        node: int
        line: int
        """The group's first line, which has its name."""
        count: int = 1
        """The group's lines, those of its ranks or devices included."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.groups = NodeGroups()
        self._places: list[NodeScroll.Place] = []
        self._order: list[int] = []

    def place(self, places: list[Place], order: Iterable[int] | None = None) -> None:
        """Takes over where nodes are drawn, and all nodes in order if some are not; none for a run on one machine."""
        self._places = places
        self._order = list(order) if order is not None else [place.node for place in places]

    def is_at(self, node: int) -> bool:
        """Whether the cursor is on a node, and to be seen."""
        return self.has_focus and node == self.groups.cursor

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leaves Enter to others on one machine."""
        return bool(self._places) if action == "fold" else True

    def action_fold(self) -> None:
        self._toggle(self.groups.cursor)

    def action_scroll_up(self) -> None:
        if not self._move(-1):
            super().action_scroll_up()

    def action_scroll_down(self) -> None:
        if not self._move(1):
            super().action_scroll_down()

    def action_scroll_home(self) -> None:
        if not self._move(-len(self._order)):
            super().action_scroll_home()

    def action_scroll_end(self) -> None:
        if not self._move(len(self._order)):
            super().action_scroll_end()

    def on_click(self, event: events.Click) -> None:
        """Folds the node that was clicked."""
        line = event.screen_y - self.query_one(TextView).region.y
        if clicked := next((place for place in self._places if place.line == line), None):
            self.groups.cursor = clicked.node
            self._toggle(clicked.node)

    def _toggle(self, node: int) -> None:
        if self._places:
            self.groups.toggle(node)
            self._redraw()

    def _move(self, by: int) -> bool:
        if not self._places:
            return False
        self.groups.move(by, self._order)
        self._redraw()
        # Those that are not drawn will be at the top.
        group = next((group for group in self._places if group.node == self.groups.cursor), self._places[0])
        region = Region(0, group.line, self.size.width, min(group.count, self.size.height))
        self.scroll_to_region(region, animate=False, force=True)
        return True

    def _redraw(self) -> None:
        if self._places:
            self.post_message(self.Folded())

    on_focus = on_blur = _redraw
