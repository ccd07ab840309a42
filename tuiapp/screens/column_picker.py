"""Chooses the columns of the list of runs: beside those that tell its runs apart, any key and result that they have."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import ClassVar, NamedTuple, TypeAlias

from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from tuiapp.screens.dialog import Picker, moving_keys
from tuiapp.trainers.contract.metrics import LOSS
from tuiapp.trainers.state.known_metrics import ordered
from tuiapp.trainers.state.results import result_values
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.trainers.state.text import sanitize
from tuiapp.view.run_list import BY_NAME, STATE
from tuiapp.view.run_values import CONFIG, METRIC, known_values, own_values

MAX_NAME = 60

AUTOMATIC = "automatic"
"""Id of the choice that undoes all others; a column's is its place."""


ByKind: TypeAlias = dict[str, Sequence[tuple[str, str]]]
"""Names of columns with the words for them, by what they are."""


class Picked(NamedTuple):
    """What the user changed of the columns that tell runs apart, by name."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def toggled(self, name: str, automatic: Collection[str]) -> Picked:
        """Returns it with a column added or removed."""
        added, removed = (tuple(one for one in names if one != name) for names in self)
        if self.shows(name, automatic):
            return Picked(added, (*removed, name) if name in automatic else removed)
        return Picked(added if name in automatic else (*added, name), removed)

    def shows(self, name: str, automatic: Collection[str]) -> bool:
        """Whether a list has a column."""
        return name in self.added or (name in automatic and name not in self.removed)


class Search(Input):
    """Leaves the space bar to the list: no name is searched for by a space."""

    def check_consume_key(self, key: str, character: str | None) -> bool:
        return key != "space" and super().check_consume_key(key, character)


class ColumnPicker(Picker[Picked | None]):
    """Returns which columns to add and to remove, or None on escape."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Cancel", id="dialog.cancel"),
        Binding("space", "turn", "Show or hide", id="columns.toggle", priority=True),
        Binding("enter", "take", "Take these columns", id="columns.take", priority=True),
        *moving_keys("columns", "column"),
    ]

    def __init__(self, groups: ByKind, automatic: Collection[str], picked: Picked) -> None:
        """`automatic` names the columns that the runs suggest."""
        count = sum(map(len, groups.values()))
        search = Search(placeholder=f"Search {count:,} columns", id="search", max_length=MAX_NAME)
        super().__init__("Columns · space shows or hides, enter applies", search)
        self._groups, self._automatic, self._picked = groups, automatic, picked
        self._names = [name for names in groups.values() for name, _ in names]

    def found(self, search: str) -> tuple[Sequence[Option], int | None]:
        words, options = search.lower().split(), []
        if not words:
            mark = "✓" if self._picked == Picked() else " "
            options.append(Option(Content(f"{mark} automatic: what tells the runs apart"), id=AUTOMATIC))
        for group, columns in self._groups.items():
            found = [one for one in columns if all(word in one[1].lower() for word in words)]
            if found:
                options.append(Option(Content.styled(group, "$text-primary"), disabled=True))
                options += [Option(self._line(*one), id=str(self._names.index(one[0]))) for one in found]
        if not options:
            return [Option(Content("no such column"), disabled=True)], None
        box = self.query_one(OptionList)
        at = box.highlighted_option.id if box.highlighted_option else None
        ids = [option.id for option in options]
        return options, ids.index(at) if at and at in ids else next(n for n, one in enumerate(ids) if one)

    def _line(self, name: str, words: str) -> Content:
        return Content(f"{'✓' if self._picked.shows(name, self._automatic) else ' '} {sanitize(words, MAX_NAME)}")

    def action_turn(self) -> None:
        """Shows or hides the column under the cursor."""
        if (option := self.query_one(OptionList).highlighted_option) is None or option.id is None:
            return
        if option.id == AUTOMATIC:
            self._picked = Picked()
        else:
            self._picked = self._picked.toggled(self._names[int(option.id)], self._automatic)
        self.fill()

    @on(OptionList.OptionSelected)
    def _toggle_clicked(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.action_turn()

    def action_take(self) -> None:
        self.dismiss(self._picked)


def columns_to_pick(infos: Iterable[RunInfo]) -> ByKind:
    """Returns all columns that a list of these runs can have, but for the state, which it always has."""
    keys, results = dict[str, None](), dict[str, None]()
    for info in infos:
        keys |= dict.fromkeys([*(key for key in known_values(info) if key not in BY_NAME), *own_values(info)])
        results |= dict.fromkeys(name for name in result_values(info) if name != LOSS)

    def named(kind: str, names: Iterable[str], others: Collection[str]) -> Sequence[tuple[str, str]]:
        return [(kind + name, kind * (name in others or name in BY_NAME) + name) for name in names]

    return {
        "the list's own": [
            (name, f"{name}  ({one.title})" if one.title != name else name)
            for name, one in BY_NAME.items()
            if name != STATE
        ],
        "configuration": named(CONFIG, keys, results),
        "results": named(METRIC, ordered(results), keys),
    }
