"""The list of presets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeAlias

from rich.cells import cell_len
from textual import events, on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.css.styles import RulesMap
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual, VisualType
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from tuiapp.library.presets import MY_SCRIPT, Preset
from tuiapp.trainers.state.text import sanitize
from tuiapp.widgets.colors import MUTED

HINTS = ("i rename · D duplicate · d delete", "i rename · D copy · d delete", "i rename · D copy")
"""Key hints below the list, longest first; the first one that fits is shown."""

BUILTIN_HINT = "D duplicate"
"""At a built-in one, which nothing changes."""

BESIDE_HINT_CELLS = 2
PADDING_CELLS = 2  # of an entry
BESIDE_CELLS = 46  # of a line, where descriptions stand beside names
LEAST_WORDS_CELLS = 20  # of a description there
MARK_CELLS = 3  # after the longest name: the mark of the one that is loaded, and a space
Change: TypeAlias = Literal["rename", "duplicate", "delete"]


class _Lines(Visual):
    """A text whose lines are cut, not wrapped."""

    RULES: ClassVar[RulesMap] = {"text_wrap": "nowrap", "text_overflow": "ellipsis"}

    def __init__(self, text: Content) -> None:
        self._text = text

    def __str__(self) -> str:
        return str(self._text)

    def render_strips(self, width: int, height: int | None, style: Style, options: RenderOptions) -> list[Strip]:
        return self._text.render_strips(width, height, style, replace(options, rules=self.RULES))

    def get_height(self, rules: RulesMap, width: int) -> int:
        return self._text.get_height(self.RULES, width)

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        return self._text.get_optimal_width(self.RULES, container_width)


class PresetList(OptionList):
    """The user's presets, then the built-in ones: name, and a line of description or error.

    The description is whole at the cursor, and everywhere if there is room.
    """

    BINDING_GROUP_TITLE = "Presets"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("i", "ask('rename')", "Name of the preset", id="presets.rename", show=False),
        Binding("D", "ask('duplicate')", "Duplicate preset", id="presets.duplicate", show=False),
        Binding("d,delete,backspace", "ask('delete')", "Delete preset", id="presets.delete", show=False),
    ]

    @dataclass
    class PresetChosen(Message):
        """The user chose a preset; it may be invalid."""

        preset: Preset

    @dataclass
    class ChangeRequested(Message):
        """The user asked to rename, duplicate or delete a preset; it may be a built-in one."""

        preset: Preset
        change: Change

    def __init__(self, *, presets: Iterable[Preset] = (), loaded: str | None = None) -> None:
        super().__init__()
        self._presets: dict[str, Preset] = {}
        self._loaded: str | None = None
        self._open = ""  # key of the entry that shows its whole text
        self._is_roomy = False  # whether all do
        self._room = 0  # cells of a line where descriptions stand beside the names; 0: beneath
        self.show(presets, loaded)

    def show(self, presets: Iterable[Preset], loaded: str | None, cursor: str = "") -> None:
        """Shows presets; `cursor` "" keeps the highlighted name or, if it is gone, its index, at first the loaded."""
        self._loaded = loaded
        before = cursor or (self.cursor.name if self.cursor else loaded)
        index = list(self._presets.values()).index(self.cursor) if self.cursor else 0
        self._presets = {f"{'builtin' if preset.builtin else 'own'}/{preset.name}": preset for preset in presets}
        keys = [key for key, preset in self._presets.items() if preset.name == before]
        keys = keys or list(self._presets)[: index + 1][-1:]
        self._open = keys[0] if keys else ""
        builtin = [self._option(key) for key, preset in self._presets.items() if preset.builtin]
        yours = [self._option(key) for key, preset in self._presets.items() if not preset.builtin]
        self.clear_options()
        if yours:
            self.add_options([_heading("Yours"), *yours])
        self.add_options([_heading("Built-in, read-only"), *builtin])
        if not yours:
            none = Option(Content("None yet: Ctrl+S saves the form."), disabled=True)
            self.add_options([_heading("Yours"), none])
        self.highlighted = self.get_option_index(keys[0]) if keys else None
        if self.size:
            self._open_all_that_fit()

    @property
    def cursor(self) -> Preset | None:
        option = self.highlighted_option
        return self._presets.get(option.id or "") if option else None

    def action_ask(self, change: Change) -> None:
        if self.cursor is not None:
            self.post_message(self.ChangeRequested(self.cursor, change))

    def watch_has_focus(self, has_focus: bool) -> None:
        super().watch_has_focus(has_focus)
        self._show_hints()

    @on(events.Resize)
    @on(OptionList.OptionHighlighted)
    def _show_hints(self) -> None:
        room = self.size.width - BESIDE_HINT_CELLS
        hints = () if self.cursor == MY_SCRIPT else (BUILTIN_HINT,) if self.cursor and self.cursor.builtin else HINTS
        hint = next((hint for hint in hints if len(hint) <= room), "")
        self.border_subtitle = hint if self.has_focus else ""

    def _size_updated(self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True) -> bool:
        # A message would come after the first picture.
        changed = super()._size_updated(size, virtual_size, container_size, layout)
        if changed and self.size.width > PADDING_CELLS:
            self._open_all_that_fit()
        return changed

    def _open_all_that_fit(self) -> None:
        width = self.size.width - PADDING_CELLS
        before = self._is_roomy, self._room
        self._room = width if width >= BESIDE_CELLS else 0
        entries = [self._entry(key) for key in self._presets]
        lines = len(self.options) - len(entries) + sum(entry.get_height({}, width) for entry in entries)
        self._is_roomy = lines <= self.size.height
        if before != (self._is_roomy, self._room):
            for key in self._presets:
                self.replace_option_prompt(key, self._prompt(key, at_cursor=key == self._open))

    def _option(self, key: str) -> Option:
        return Option(self._prompt(key, at_cursor=key == self._open), id=key)

    def _prompt(self, key: str, *, at_cursor: bool) -> VisualType:
        entry = self._entry(key, at_cursor=at_cursor)
        return entry if at_cursor or self._is_roomy else _Lines(entry)

    def _entry(self, key: str, *, at_cursor: bool = False) -> Content:
        preset = self._presets[key]
        name_cells = max(cell_len(sanitize(preset.name)) for preset in self._presets.values()) + MARK_CELLS
        entry = _entry(preset, preset.name == self._loaded, at_cursor=at_cursor)
        if self._room - name_cells < LEAST_WORDS_CELLS:
            return entry
        name, words = entry.split("\n")
        if not (at_cursor or self._is_roomy):
            # The line is cut where it ends.
            return Content.assemble(name.pad_right(name_cells - name.cell_length), words)
        lines = words.wrap(self._room - name_cells)
        beside = Content("\n" + " " * name_cells).join(line.rstrip() for line in lines)
        return Content.assemble(name.pad_right(name_cells - name.cell_length), beside)

    @on(OptionList.OptionHighlighted)
    def _open_the_cursor_s(self, event: OptionList.OptionHighlighted) -> None:
        """Shows the whole text of the preset at the cursor; the others have a line."""
        key = event.option_id or ""
        if key != self._open:
            for changed in {self._open, key} & self._presets.keys():
                self.replace_option_prompt(changed, self._prompt(changed, at_cursor=changed == key))
            self._open = key

    @on(OptionList.OptionSelected)
    def _post_choice(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if event.option_id is not None:
            self.post_message(self.PresetChosen(self._presets[event.option_id]))


def _entry(preset: Preset, loaded: bool, *, at_cursor: bool = False) -> Content:
    # Not fainter than the name at the cursor: unreadable on its background in some themes.
    style = "" if at_cursor else MUTED
    name, summary = sanitize(preset.name), sanitize(preset.summary)
    if preset.error is not None:
        return Content.assemble(("✗ ", "$text-error"), (name, "bold"), "\n", (f"cannot be used; {summary}", style))
    return Content.assemble((name, "bold"), " ✓" if loaded else "", "\n", (summary, style))


def _heading(words: str) -> Option:
    return Option(Content.styled(words, "$text-primary"), disabled=True)
