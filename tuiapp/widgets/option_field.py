"""One configuration key of the form."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.suggester import Suggester
from textual.widget import Widget
from textual.widgets import Input, Static

from tuiapp.trainers.config.datasets import SOURCES
from tuiapp.trainers.config.mirror import TENSORBOARD
from tuiapp.trainers.config.options import Option
from tuiapp.trainers.config.run_config import OPTIONS
from tuiapp.trainers.config.user_code import PY, UserCodeError, read_names
from tuiapp.trainers.state.text import sanitize
from tuiapp.widgets.choice_input import ChoiceInput
from tuiapp.widgets.colors import MUTED


class PathSuggester(Suggester):
    """Suggests the first path that completes the typed one, by the prefix before it.

    After "py:FILE:" it suggests a name that FILE defines.

    Args:
        suffixes: Prefix, which may be empty, → how the names of files end; "/" for directories only.
    """

    def __init__(self, suffixes: Mapping[str, str]) -> None:
        # Not cached: directories change.
        super().__init__(use_cache=False, case_sensitive=True)
        self._suffixes = suffixes

    async def get_suggestion(self, value: str) -> str | None:
        """Returns the whole completed value, or None."""
        for prefix, suffix in self._suffixes.items():
            if value.startswith(prefix):
                typed = value.removeprefix(prefix)
                # A directory may be on a server that does not answer.
                completed = await asyncio.to_thread(complete, typed, suffix, prefix == PY)
                return f"{prefix}{completed}" if completed else None
        return None


def complete(typed: str, suffix: str, named: bool = False) -> str | None:
    """Returns the first completion in order: a directory, with a slash, or a file with the suffix.

    With `named`, after a file and a colon: the first name that it defines.
    """
    if named and f"{suffix}:" in typed:
        return _complete_name(*typed.rsplit(":", 1))
    directory, start = os.path.split(typed)
    if not typed or typed == "~":
        return None
    try:
        with os.scandir(os.path.expanduser(directory) or ".") as entries:
            names = sorted(
                f"{entry.name}/" if entry.is_dir() else entry.name
                for entry in entries
                if entry.name.startswith(start)
                and entry.name.isprintable()
                and (entry.is_dir() or entry.name.endswith(suffix))
                and (start or not entry.name.startswith("."))
            )
    except (OSError, ValueError):
        return None
    return os.path.join(directory, names[0]) if names else None


def _complete_name(file: str, start: str) -> str | None:
    try:
        names = read_names(Path(os.path.expanduser(file)).absolute())
    except UserCodeError:
        return None
    return next((f"{file}:{name}" for name in names if name.startswith(start) and name != "*"), None)


COMPLETED = {"script": ".py", "program": "", "directory": "/", "weights": ".safetensors"}
"""How the names end that complete a path: no file's ends with "/"."""
ENDINGS = {**{prefix: source.ending for prefix, source in SOURCES.items()}, TENSORBOARD: "/"}
"""Prefix → the ending of the paths after it."""

SEVERAL = "several are a sweep: A, B or A..B"

LABEL_CELLS = 17
"""Width of the label column, including the mark of a change."""

CONTROL_CELLS = 20

USEFUL_CELLS = 16
"""Help is hidden where fewer cells remain."""


class NumberInput(Input):
    """Leaves to the screen the keys that no number has: `?` and `/`."""

    LEFT = frozenset("?/")

    def check_consume_key(self, key: str, character: str | None) -> bool:
        return character not in self.LEFT and super().check_consume_key(key, character)

    async def _on_key(self, event: events.Key) -> None:
        if event.character in self.LEFT:
            # Else the base class's handler, which is called as well, would type it.
            event.prevent_default()


class OptionField(Widget):
    """Label, control and help on one line; the problem in words beneath. The control is made when it is first shown.

    Where a value may be chosen or begin with a prefix, the menu's last entry replaces the menu with an input.
    """

    BINDING_GROUP_TITLE = "Field"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("comma", "several", "Several values", id="field.several-values", show=False),
        Binding("escape", "choose", "Back to the menu", id="field.choose-from-the-menu-again", show=False),
    ]

    DEFAULT_CSS = """
    OptionField {
        height: auto;

        Input, ChoiceInput { width: 20; margin-left: 17; }
        /* Textual's own `compact` styles each input twice. */
        Input { height: 1; border: none !important; padding: 0 1; background: $surface; }
        Input:focus { background: $surface-lighten-1; }
        Input.path, Input.line { width: 1fr; }
        Input > .input--placeholder { color: $text-muted; }

        .problem {
            height: auto;
            margin-left: 17;
            color: $text-error;
        }
    }
    """

    changed: reactive[bool] = reactive(False)
    heading: reactive[str] = reactive("")
    """The group that begins with it, said at the line's end where groups have no line of their own."""
    problem: reactive[str] = reactive("", init=False)
    """What is wrong with the value, or ""."""

    class Changed(Message):
        """The user changed the text or the choice."""

    def __init__(
        self,
        option: Option,
        text: str,
        *,
        hidden: bool,
        notes: Mapping[str, str] | None = None,
        unavailable: Mapping[str, str] | None = None,
    ) -> None:
        """For a choice, `notes` has one-line descriptions by value, `unavailable` why a value cannot be chosen."""
        super().__init__(id=f"field-{option.key.replace('_', '-')}")
        self.option = option
        self._text = text
        self._notes = notes or {}
        self._unavailable = unavailable or {}
        self.several = ""
        self.display = not hidden

    def compose(self) -> ComposeResult:
        if self.display:
            yield from self._controls()

    def _controls(self) -> Iterator[Widget]:
        if self.option.menu:
            typed = self._is_typed(self._text)
            choice = ChoiceInput(
                choices=self.option.menu,
                value=self.option.menu[0] if typed else self._text,
                prefixes=self.option.prefixes,
                notes=self._notes,
                unavailable=self._unavailable,
            )
            choice.display = not typed
            yield choice
            if typed:
                yield self._path_box()
        elif self.option.text != "word":
            # Not selected as a whole: the next key would replace a long text.
            box = Input(self._text, placeholder=self.option.help, select_on_focus=False, classes="line", validate_on=())
            if self.option.text in COMPLETED:
                box.suggester = PathSuggester({"": COMPLETED[self.option.text]})
            yield box
        else:
            kind = NumberInput if self.option.kind in ("int", "float") else Input
            yield kind(self._text, validate_on=())

    def _path_box(self) -> Input:
        box = Input(self._text, select_on_focus=False, classes="path", validate_on=())
        box.suggester = PathSuggester({prefix: ENDINGS[prefix] for prefix in self.option.prefixes})
        return box

    def render(self) -> Content:
        words = f"{'•' if self.changed else ' '} {self.option.label}".ljust(LABEL_CELLS)
        label = Content.styled(words, "bold $text-warning") if self.changed else Content(words)
        if self._is_typed_path or self.option.text != "word":
            return label
        free = self.size.width - LABEL_CELLS - CONTROL_CELLS
        bare = self.screen.classes & {"-short", "-least"}
        heading = self.heading if bare and len(self.heading) < free else ""
        room = free - 2 - (len(heading) + 2 if heading else 0)
        shown = Content(self.help).truncate(room, ellipsis=True).stylize(MUTED) if room >= USEFUL_CELLS else Content()
        row = Content.assemble(label, " " * (CONTROL_CELLS + 2), shown)
        if not heading:
            return row if shown else label
        row = row.truncate(self.size.width - len(heading), pad=True)
        return Content.assemble(row, (heading, "bold $text-primary"))

    @property
    def help(self) -> str:
        """What its value means."""
        if self.several:
            return self.several
        note = self._notes.get(self.option.prefix_of(self._text) or self._text, "")
        return self._unavailable.get(self._text) or note or self.option.help

    @property
    def hint(self) -> str:
        """The key that completes a path, or how it takes several values; "" if it has them, or takes one alone."""
        if self.option.text in COMPLETED:
            return "→ completes"
        is_key = self.option.key in OPTIONS
        return SEVERAL if is_key and self.option.kind in ("int", "float") and not self.several else ""

    @property
    def text(self) -> str:
        return self._text

    def show_text(self, text: str) -> None:
        """Sets the text without posting `Changed`."""
        self._text = text
        with self.prevent(Input.Changed):
            for box in self.query(Input):
                box.value = text
        for choice in self.query(ChoiceInput):
            if not (typed := self._is_typed(text)):
                choice.value = text
            self._show_control(typed)
        self.refresh()

    def show_choices(self, notes: Mapping[str, str], unavailable: Mapping[str, str]) -> None:
        """Describes the choices anew; an open menu keeps its words."""
        self._notes, self._unavailable = notes, unavailable
        for choice in self.query(ChoiceInput):
            choice.notes, choice.unavailable = notes, unavailable
        self.refresh()

    def _is_typed(self, text: str) -> bool:
        """Whether a text of a field with a menu is none of the menu's: after a prefix, or several of them."""
        return bool(self.option.prefix_of(text)) or "," in text

    def show(self, *, hidden: bool, changed: bool, problem: str, several: str = "") -> None:
        """Shows the field or hides it; `several` says what several values are, "" of one."""
        self.display = not hidden
        if not hidden and not self.children:
            self.mount(*self._controls())
        self.changed, self.problem = changed, problem
        if several != self.several:
            self.several = several
            self.refresh()

    def focus_control(self) -> None:
        # There is none while the program ends.
        if control := next((control for control in self.query("Input, ChoiceInput") if control.display), None):
            control.focus()

    def action_choose(self) -> None:
        """Restores the menu with its previous value in place of the input."""
        choice = self.query_one(ChoiceInput)
        self._show_control(False)
        choice.focus()
        self._note(choice.value)

    def action_several(self) -> None:
        """Replaces the menu with an input, for more values after its own."""
        self._show_typed(f"{self.query_one(ChoiceInput).value}, ")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Claims escape only while a path is typed in place of a menu, the comma only while one is not."""
        if action == "several":
            return bool(self.option.menu) and not self._is_typed_path
        return self._is_typed_path if action == "choose" else True

    @property
    def _is_typed_path(self) -> bool:
        return bool(self.option.menu) and any(box.display for box in self.query(Input))

    def _show_control(self, typed: bool) -> None:
        """Shows the menu or, made when it is first needed, the input of a path."""
        if typed and not self.query(Input):
            self.mount(self._path_box())
        for box in self.query(Input):
            box.display = typed
        self.query_one(ChoiceInput).display = not typed
        self.refresh()

    def watch_problem(self, problem: str) -> None:
        shown, text = self.query(".problem"), Content(f"✗ {sanitize(problem)}")
        if not problem:
            shown.remove()
        elif shown:
            shown.only_one(Static).update(text)
        else:
            self.mount(Static(text, classes="problem"))

    @on(Input.Changed)
    def _text_typed(self, event: Input.Changed) -> None:
        event.stop()
        self._note(event.value)

    @on(ChoiceInput.Changed)
    def _value_chosen(self, event: ChoiceInput.Changed) -> None:
        event.stop()
        self._note(event.value)

    @on(ChoiceInput.PrefixChosen)
    def _show_input(self, event: ChoiceInput.PrefixChosen) -> None:
        event.stop()
        typed = next((box.value for box in self.query(Input) if box.value.startswith(event.prefix)), event.prefix)
        self._show_typed(typed)

    def _show_typed(self, typed: str) -> None:
        self._note(typed)
        self._show_control(True)
        box = self.query_one(Input)
        box.value = typed
        box.focus()
        box.cursor_position = len(typed)

    def _note(self, text: str) -> None:
        if text != self._text:
            self._text = text
            self.refresh()
            self.post_message(self.Changed())
