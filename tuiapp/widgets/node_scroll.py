"""Scrolls lines in groups that fold: one for each node of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.geometry import Region
from textual.message import Message
from textual.widgets import Static

from tuiapp.state.node_groups import MOST_OPEN, NodeGroups
from tuiapp.state.run_state import RunState


class NodeScroll(VerticalScroll):
    """With nodes, the arrow keys move a cursor among them, and Enter folds; without, it just scrolls."""

    BINDING_GROUP_TITLE = "Nodes"

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "fold", "Fold the node", show=False, id="run.fold")]

    class Folded(Message):
        """The cursor has moved, or a node was folded or unfolded: the lines are to be drawn again."""

    @dataclass
    class Place:
        """Where a node's lines are."""

        node: int
        line: int
        """Its first line, in which its name is."""
        count: int = 1
        """Of its lines, those of its ranks or devices included."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.groups = NodeGroups()
        self._places: list[NodeScroll.Place] = []

    def begin(self, state: RunState) -> None:
        """Takes over how many ranks there are: nodes with many are folded at first."""
        self.groups.folded = state.world_size > MOST_OPEN

    def place(self, places: list[Place]) -> None:
        """Takes over where nodes are drawn; an empty list for a run on one machine."""
        self._places = places

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
        if not self._move(-len(self._places)):
            super().action_scroll_home()

    def action_scroll_end(self) -> None:
        if not self._move(len(self._places)):
            super().action_scroll_end()

    def on_focus(self) -> None:
        self._redraw()

    def on_blur(self) -> None:
        self._redraw()

    def on_click(self, event: events.Click) -> None:
        """Folds the node that was clicked."""
        line = event.screen_y - self.query_one(Static).region.y
        if clicked := next((one for one in self._places if one.line == line), None):
            self.groups.cursor = clicked.node
            self._toggle(clicked.node)

    def _toggle(self, node: int) -> None:
        if self._places:
            self.groups.toggle(node)
            self._redraw()

    def _move(self, by: int) -> bool:
        if not self._places:
            return False
        self.groups.move(by, [one.node for one in self._places])
        self._redraw()
        place = next(one for one in self._places if one.node == self.groups.cursor)
        region = Region(0, place.line, self.size.width, min(place.count, self.size.height))
        self.scroll_to_region(region, animate=False, force=True)
        return True

    def _redraw(self) -> None:
        if self._places:
            self.post_message(self.Folded())
