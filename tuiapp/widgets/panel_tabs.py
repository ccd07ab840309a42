"""The panels' names in one line, for terminals that fit one panel at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

from textual import events
from textual.content import Content
from textual.geometry import Offset
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from tuiapp.widgets.colors import MUTED


class PanelTabs(Widget):
    DEFAULT_CSS = """
    PanelTabs {
        height: 1;
        background: $panel;
    }
    """

    names: reactive[tuple[str, ...]] = reactive(())
    """The labels, each starting with its key."""
    active: reactive[int] = reactive(0)

    @dataclass
    class Chosen(Message):
        """The user clicked a tab."""

        index: int

    def render(self) -> Content:
        return Content(" ").join(
            [
                Content.styled(label, "bold reverse" if index == self.active else MUTED)
                for index, label in enumerate(self._labels)
            ]
        )

    def on_click(self, event: events.Click) -> None:
        for index, left in enumerate(self._starts):
            if left <= event.x < left + len(self._labels[index]):
                self.post_message(self.Chosen(index))

    def jump_targets(self) -> list[tuple[Offset, Callable[[], object]]]:
        """Returns the tabs."""
        starts = enumerate(self._starts)
        return [(Offset(left, 0), partial(self.post_message, self.Chosen(index))) for index, left in starts]

    @property
    def _starts(self) -> list[int]:
        """The cells in which the labels begin."""
        return [*accumulate((len(label) + 1 for label in self._labels[:-1]), initial=0)]

    @property
    def _labels(self) -> list[str]:
        """The names or, where not all fit, the keys alone of inactive tabs."""
        labels = [f" {name} " for name in self.names]
        if sum(map(len, labels)) + len(labels) - 1 <= self.size.width:
            return labels
        return [
            label if index == self.active else f" {label.split(maxsplit=1)[0]} " for index, label in enumerate(labels)
        ]
