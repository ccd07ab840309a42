"""One configuration key of the form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Input, Static

from trainers.config.datasets import SOURCES
from trainers.config.mirror import TENSORBOARD
from trainers.state.text import sanitize
from tuiapp.widgets.choice_input import ChoiceInput
from tuiapp.widgets.field_label import CONTROL_CELLS, FieldWords
from tuiapp.widgets.path_suggester import PathSuggester

COMPLETED = {"script": ".py", "program": "", "directory": "/"}
"""How the names end that complete a path: no file's ends with "/"."""
ENDINGS = {**{prefix: source.ending for prefix, source in SOURCES.items()}, TENSORBOARD: "/"}
"""The same after a prefix."""


class OptionField(Widget):
    """Label, control and help on one line; the problem in words beneath.

    Where a value may be chosen or begin with a prefix, the menu's last entry replaces the menu with an input.
    """

    BINDING_GROUP_TITLE = "Field"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "choose", "Back to the menu", id="field.choose-from-the-menu-again", show=False)
    ]

    DEFAULT_CSS = """
    OptionField {
        height: auto;

        Input, ChoiceInput { width: 20; margin-left: 17; }
        Input.-textual-compact { padding: 0 1; background: $surface; }
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

    changed: reactive[bool] = reactive(False, toggle_class="-changed")
    problem: reactive[str] = reactive("")
    """What is wrong with the value, or ""."""

    class Changed(Message):
        """The user changed the text or the choice."""

    def __init__(self, words: FieldWords) -> None:
        super().__init__(id=f"field-{words.option.key.replace('_', '-')}")
        self.option = words.option
        self._text = words.text
        self._notes = words.notes
        self._unavailable = words.unavailable

    def compose(self) -> ComposeResult:
        if self.option.menu:
            typed = bool(self.option.prefix_of(self._text))
            choice = ChoiceInput(
                choices=self.option.menu,
                value=self.option.menu[0] if typed else self._text,
                prefixes=self.option.prefixes,
                notes=self._notes,
                unavailable=self._unavailable,
            )
            choice.display = not typed
            yield choice
            if self.option.prefixes:
                box = Input(self._text, compact=True, select_on_focus=False, classes="path")
                box.suggester = PathSuggester({one: ENDINGS[one] for one in self.option.prefixes})
                box.display = typed
                yield box
        elif self.option.text != "word":
            # Not selected as a whole: the next key would replace a long text.
            words = self.option.help
            box = Input(self._text, placeholder=words, compact=True, select_on_focus=False, classes="line")
            if self.option.text in COMPLETED:
                box.suggester = PathSuggester({"": COMPLETED[self.option.text]})
            yield box
        else:
            yield Input(self._text, compact=True, select_on_focus=True)

    def render(self) -> Content:
        words = self._words_now
        if self._is_typed_path or self.option.text != "word":
            return words.label(self.changed)
        between = " " * (CONTROL_CELLS + 2)
        return Content.assemble(words.label(self.changed), between, words.help_within(self.size.width))

    @property
    def help(self) -> str:
        return self._words_now.help

    @property
    def _words_now(self) -> FieldWords:
        return FieldWords(self.option, self._text, self._notes, self._unavailable)

    @property
    def text(self) -> str:
        return self._text

    def show_text(self, text: str) -> None:
        """Sets the text without posting `Changed`."""
        self._text = text
        with self.prevent(Input.Changed):
            for box in self.query(Input):
                box.value = text
        typed = bool(self.option.prefix_of(text))
        for choice in self.query(ChoiceInput):
            if not typed:
                choice.value = text
            self._show_control(typed)
        self.refresh()

    def show_choices(self, notes: Mapping[str, str], unavailable: Mapping[str, str]) -> None:
        """Describes the choices anew; an open menu keeps its words."""
        self._notes, self._unavailable = notes, unavailable
        for choice in self.query(ChoiceInput):
            choice.notes, choice.unavailable = notes, unavailable
        self.refresh()

    def focus_control(self) -> None:
        # There is none while the program ends.
        if control := next((one for one in self.query("Input, ChoiceInput") if one.display), None):
            control.focus()

    def action_choose(self) -> None:
        """Restores the menu with its previous value in place of the input."""
        choice = self.query_one(ChoiceInput)
        self._show_control(False)
        choice.focus()
        self._note(choice.value)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Claims escape only while a path is typed in place of a menu."""
        return self._is_typed_path if action == "choose" else True

    @property
    def _is_typed_path(self) -> bool:
        return any(box.display for box in self.query("Input.path"))

    def _show_control(self, typed: bool) -> None:
        for box in self.query("Input.path"):
            box.display = typed
            self.query_one(ChoiceInput).display = not typed
        self.refresh()

    def watch_problem(self, problem: str) -> None:
        shown = self.query(".problem")
        if not problem:
            shown.remove()
        elif shown:
            shown.only_one(Static).update(self._words(problem))
        else:
            self.mount(Static(self._words(problem), classes="problem"))

    @staticmethod
    def _words(problem: str) -> Content:
        return Content(f"✗ {sanitize(problem)}")

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
        box = self.query_one(Input)
        if not box.value.startswith(event.prefix):
            box.value = event.prefix
        self._show_control(True)
        box.focus()
        box.cursor_position = len(box.value)
        self._note(box.value)

    def _note(self, text: str) -> None:
        if text != self._text:
            self._text = text
            self.refresh()
            self.post_message(self.Changed())
