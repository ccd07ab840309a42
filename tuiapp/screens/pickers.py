"""Lists to choose from: metrics, fields of the form, processes, themes and columns."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence
from typing import ClassVar, NamedTuple, Protocol, TypeAlias

from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from tuiapp.screens.dialog import Picker, moving_keys
from tuiapp.trainers.config.options import Option as Field
from tuiapp.trainers.contract.metrics import LOSS
from tuiapp.trainers.state.known_metrics import grouped, metric, ordered
from tuiapp.trainers.state.objective import result_values
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.trainers.state.text import sanitize
from tuiapp.view.devices.processes import ProcessRow, describe
from tuiapp.view.draft import FIELDS
from tuiapp.view.run_list import BY_NAME, STATE
from tuiapp.view.run_values import CONFIG, METRIC, known_values, own_values
from tuiapp.widgets.option_field import LABEL_CELLS

MANY = 16
"""Number of metrics above which a search field is shown."""

MOST = 500
"""Most entries in a list at once; the others are found by a search."""

MAX_NAME = 60

NOTHING = ""
"""The result where the user chose to have no metric."""


class Pins(Protocol):
    """The metrics that the user wants charts of, in every run that reports them."""

    @property
    def pinned(self) -> Sequence[str]: ...

    def toggle_pin(self, name: str) -> None:
        """Pins a metric, or unpins it."""


class MetricList(Picker[str | None]):
    """Returns the chosen name, or None on escape; a label `nothing` adds a choice that returns `NOTHING`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Cancel", id="dialog.cancel"),
        Binding("f2", "pin", "Pin", tooltip="A chart in all runs", id="metrics.pin"),
        *moving_keys("metrics", "metric"),
    ]

    def __init__(
        self, names: Sequence[str], drawn: str, *, title: str, nothing: str = "", pins: Pins | None = None
    ) -> None:
        """With `pins` F2 pins the metric under the cursor."""
        hint = f"Search {len(names):,} metrics"
        search = Input(placeholder=hint, id="search", max_length=MAX_NAME) if len(names) > MANY else None
        super().__init__(title, search)
        # In order already: they are searched at each key.
        self._names, self._drawn, self._nothing, self._pins = ordered(names), drawn, nothing, pins
        self._places = {name: index for index, name in enumerate(self._names)}

    @on(OptionList.OptionSelected)
    def _take(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        index = int(event.option_id or 0)
        self.dismiss(self._names[index] if index >= 0 else NOTHING)

    def on_mount(self) -> None:
        if self._pins:
            self.query_one("#dialog").border_subtitle = "F2 pins a chart of it"

    def options_for(self, search: str) -> tuple[Sequence[Option], int | None]:
        options = [Option(Content(self._nothing), id="-1")] if self._nothing and not search else []
        left = MOST
        for group, names in grouped(self._names, search).items():
            if group and left > 0:
                options.append(Option(Content.styled(group, "$text-primary"), disabled=True))
            options += [Option(self._line(name), id=str(self._places[name])) for name in names[: max(0, left)]]
            left -= len(names)
        if left < 0:
            options.append(Option(Content(f"… {-left:,} more: search for them"), disabled=True))
        if not options:
            options.append(Option(Content("no such metric"), disabled=True))
        chosen = str(self._places.get(self._drawn, -1))
        ids = [option.id for option in options]
        selectable = (index for index, option in enumerate(options) if option.id)
        return options, ids.index(chosen) if chosen in ids else next(selectable, None)

    def _line(self, name: str) -> Content:
        label, full_name = metric(name).label, sanitize(name, MAX_NAME)
        mark = "✓ " if name == self._drawn else "  "
        # Not fainter than the label: unreadable on the cursor's background in some themes.
        pinned = "  · pinned" if self._pins and name in self._pins.pinned else ""
        return Content(f"{mark}{label}{pinned}" if label == full_name else f"{mark}{label}  ({full_name}){pinned}")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leaves out the pin key where there are no charts to pin to."""
        return self._pins is not None if action == "pin" else True

    def action_pin(self) -> None:
        box = self.query_one(OptionList)
        option = box.highlighted_option
        if self._pins and option and option.id and (index := int(option.id)) >= 0:
            self._pins.toggle_pin(self._names[index])
            box.replace_option_prompt(option.id, self._line(self._names[index]))


class FieldList(Picker[str | None]):
    """Returns the key of the chosen field of the form, found by any part of its names; None on escape.

    Of a field that does not apply it returns the one by which it would.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Cancel", id="dialog.cancel"),
        *moving_keys("fields", "field"),
    ]

    def __init__(self, hidden: Container[str]) -> None:
        """`hidden` are the keys that do not apply."""
        super().__init__("Find a field", Input(placeholder="Any part of its name", id="search", max_length=MAX_NAME))
        self._hidden = hidden

    def options_for(self, search: str) -> tuple[Sequence[Option], int | None]:
        ranked = sorted((rank, index) for index, field in enumerate(FIELDS.values()) if (rank := _rank(field, search)))
        fields = [[*FIELDS.values()][index] for _, index in ranked]
        if not fields:
            return [Option("No field has this name.", disabled=True)], None
        options = [Option(self._line(field), id=field.key, disabled=self._is_of_no_use(field)) for field in fields]
        applies = next((index for index, field in enumerate(fields) if field.key not in self._hidden), None)
        usable = next((index for index, option in enumerate(options) if not option.disabled), None)
        return options, usable if applies is None else applies

    def _is_of_no_use(self, field: Field) -> bool:
        """Whether it neither applies nor another one decides that it does."""
        return field.key in self._hidden and (field.only is None or field.only[0] in self._hidden)

    def _line(self, field: Field) -> Content:
        text = field.label.ljust(LABEL_CELLS) + field.key
        if field.key in self._hidden and field.only:
            text += f"  (with {field.only[0]} {' or '.join(field.only[1])})"
        return Content(text)

    @on(OptionList.OptionSelected)
    def _take(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        field = FIELDS[str(event.option_id)]
        self.dismiss(field.only[0] if field.key in self._hidden and field.only else field.key)


def _rank(field: Field, search: str) -> int:
    """1 of a field that a text names, 2 of one whose name begins so, 3 if it is a part of one; 0 of others."""
    text = search.casefold().replace(" ", "_")
    names = [name.casefold().replace(" ", "_") for name in (field.key, field.label, *field.aliases, *field.similar)]
    if text in names:
        return 1
    return 2 if any(name.startswith(text) for name in names) else 3 if any(text in name for name in names) else 0


class ProcessList(Picker[ProcessRow | None]):
    """Returns the chosen process, found by any part of its line; None on escape."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Cancel", id="dialog.cancel"),
        *moving_keys("processes", "process"),
    ]

    def __init__(self, rows: Sequence[ProcessRow]) -> None:
        super().__init__(
            "End a process", Input(placeholder="pid, user, run, command", id="search", max_length=MAX_NAME)
        )
        self._rows = {str(row.pid): row for row in sorted(rows, key=lambda row: not row.gpus)}

    def options_for(self, search: str) -> tuple[Sequence[Option], int | None]:
        lines = {pid: describe(row) for pid, row in self._rows.items()}
        options = [Option(Content(line), id=pid) for pid, line in lines.items() if search.casefold() in line.casefold()]
        return options[:MOST] or [Option("No process is found by this.", disabled=True)], 0 if options else None

    @on(OptionList.OptionSelected)
    def _take(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(self._rows[str(event.option_id)])


class ThemeList(Picker[str | None]):
    """Returns the chosen theme, or None on escape, which shows the former one again."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "Cancel", id="dialog.cancel")]

    def __init__(self) -> None:
        super().__init__("Theme")
        self._before = self.app.theme

    def options_for(self, search: str) -> tuple[Sequence[Option], int | None]:
        names = sorted(self.app.available_themes)
        options = [Option(f"{'✓' if name == self._before else ' '} {name}", id=name) for name in names]
        return options, names.index(self._before)

    @on(OptionList.OptionHighlighted)
    def _preview(self, event: OptionList.OptionHighlighted) -> None:
        self.app.theme = event.option_id or self._before

    @on(OptionList.OptionSelected)
    def _choose(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id)

    def action_cancel(self) -> None:
        self.app.theme = self._before
        self.dismiss(None)


AUTOMATIC = "automatic"
"""Id of the choice that undoes all others; a column's id is its index."""


ByKind: TypeAlias = dict[str, Sequence[tuple[str, str]]]
"""Names of columns and their labels, by the kind of column."""


class Picked(NamedTuple):
    """What the user changed of the columns that tell runs apart, by name."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def toggled(self, name: str, automatic: Collection[str]) -> Picked:
        """Returns it with a column added or removed."""
        added, removed = (tuple(kept for kept in names if kept != name) for names in self)
        if self.shows(name, automatic):
            return Picked(added, (*removed, name) if name in automatic else removed)
        return Picked(added if name in automatic else (*added, name), removed)

    def shows(self, name: str, automatic: Collection[str]) -> bool:
        """Whether a list has a column."""
        return name in self.added or (name in automatic and name not in self.removed)


class Search(Input):
    """A search field that leaves the space bar to the list: no name is searched for by a space."""

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

    def options_for(self, search: str) -> tuple[Sequence[Option], int | None]:
        words, options = search.lower().split(), []
        if not words:
            mark = "✓" if self._picked == Picked() else " "
            options.append(Option(Content(f"{mark} automatic: what tells the runs apart"), id=AUTOMATIC))
        for group, columns in self._groups.items():
            matching = [column for column in columns if all(word in column[1].lower() for word in words)]
            if matching:
                options.append(Option(Content.styled(group, "$text-primary"), disabled=True))
                options += [Option(self._line(*column), id=str(self._names.index(column[0]))) for column in matching]
        if not options:
            return [Option(Content("no such column"), disabled=True)], None
        box = self.query_one(OptionList)
        at = box.highlighted_option.id if box.highlighted_option else None
        ids = [option.id for option in options]
        return options, ids.index(at) if at and at in ids else next(n for n, option_id in enumerate(ids) if option_id)

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

    def named(kind: str, names: Iterable[str], ambiguous: Collection[str]) -> Sequence[tuple[str, str]]:
        return [(kind + name, kind * (name in ambiguous or name in BY_NAME) + name) for name in names]

    return {
        "the list's own": [
            (name, f"{name}  ({column.title})" if column.title != name else name)
            for name, column in BY_NAME.items()
            if name != STATE
        ],
        "configuration": named(CONFIG, keys, results),
        "results": named(METRIC, ordered(results), keys),
    }
