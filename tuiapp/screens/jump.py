"""The jump key: a letter at every target of the screen beneath; typing it goes there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Offset, Region
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import OptionList, Static

LETTERS = "asdfghjklqwertyuiopzxcvbnm"
"""Labels of targets, those easiest to reach first."""


Target: TypeAlias = tuple[Offset, Callable[[], object]]
"""Where a target's letter stands, and the call that goes there."""


@runtime_checkable
class HasTargets(Protocol):
    """A widget with other targets than itself, or a screen with others than what can have the focus on it."""

    def jump_targets(self) -> Sequence[Target]:
        """Returns the targets with their places in the widget's content, or on the screen."""


class JumpScreen(ModalScreen[None]):
    """Shows the letters; any other key, or a click, takes them away."""

    DEFAULT_CSS = """
    JumpScreen {
        background: transparent;
        & > Static {
            position: absolute;
            width: auto;
            height: 1;
            background: $warning;
            color: $background;
            text-style: bold;
        }
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Cancel", id="jump.cancel", show=False)]

    def __init__(self, beneath: Screen[Any]) -> None:
        super().__init__()
        self._targets = dict(zip(*labelled(targets(beneath)), strict=True))
        self._typed = ""
        self._size = beneath.size

    def compose(self) -> ComposeResult:
        for label, (offset, _) in self._targets.items():
            letter = Static(Content(label))
            letter.styles.offset = offset
            yield letter

    def on_key(self, event: events.Key) -> None:
        event.stop()
        self._typed += event.character or " "
        if not any(label.startswith(self._typed) for label in self._targets):
            self.dismiss()
        elif target := self._targets.get(self._typed):
            self.dismiss()
            _, go = target
            self.app.call_after_refresh(go)

    def on_click(self) -> None:
        self.dismiss()

    def on_resize(self, event: events.Resize) -> None:
        if event.size != self._size:
            # The targets are elsewhere.
            self.dismiss()


def labelled(targets: Sequence[Target]) -> tuple[list[str], Sequence[Target]]:
    """Returns a label for each target, none of which begins another: a letter, of many the last ones two."""
    count = len(LETTERS)
    alone = max(0, count - max(0, -(-(len(targets) - count) // (count - 1))))
    labels = [*LETTERS[:alone], *map("".join, product(LETTERS[alone:], LETTERS))][: len(targets)]
    return labels, targets[: len(labels)]


def targets(screen: Screen[Any]) -> list[Target]:
    """Returns what can be gone to on a screen, from top to bottom: fields, panels, columns, rows."""
    unsorted = [*screen.jump_targets()] if isinstance(screen, HasTargets) else []
    if not unsorted:
        unsorted = [target for widget in screen.walk_children(Widget) for target in _targets_of(screen, widget)]
    placed = dict(reversed(unsorted))
    return sorted(placed.items(), key=lambda target: (target[0].y, target[0].x))


def _targets_of(screen: Screen[Any], widget: Widget) -> Iterator[Target]:
    if not (isinstance(widget, HasTargets) or widget.focusable) or not (widget.is_on_screen and widget.display):
        return
    geometry = screen.find_widget(widget)
    shown = geometry.region.intersection(geometry.clip)
    if isinstance(widget, OptionList):
        yield from _options(screen, widget, shown)
    elif isinstance(widget, HasTargets):
        corner = widget.content_region.offset
        inside = ((corner + offset, go) for offset, go in widget.jump_targets())
        yield from (target for target in inside if shown.contains_point(target[0]))
    elif shown:
        yield shown.offset, widget.focus


def _options(screen: Screen[Any], choices: OptionList, shown: Region) -> Iterator[Target]:
    """Yields the first line of each choice that is shown of a list."""

    def choose(index: int) -> None:
        choices.focus()
        choices.highlighted = index

    listed = set[int]()
    inside = choices.content_region.intersection(shown)
    for y in range(inside.y, inside.bottom):
        index = screen.get_style_at(inside.x, y).meta.get("option")
        if index is not None and index not in listed and not choices.get_option_at_index(index).disabled:
            listed.add(index)
            yield Offset(inside.x, y), partial(choose, index)
