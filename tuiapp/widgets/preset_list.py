"""The list of presets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from textual import events, on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from tuiapp.library.presets import Preset
from tuiapp.state.text import sanitize

HINTS = ("r rename · d duplicate · del delete", "r rename · d duplicate · del", "r rename · d copy")
"""Key hints below the list, longest first; the first one that fits is shown."""

BESIDE_HINT_CELLS = 2
Change: TypeAlias = Literal["rename", "duplicate", "delete"]


class PresetList(OptionList):
    """Built-in presets, then the user's: name, and one line of description or error."""

    BINDING_GROUP_TITLE = "Presets"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "ask('rename')", "Rename preset", id="presets.rename", show=False),
        Binding("d", "ask('duplicate')", "Duplicate preset", id="presets.duplicate", show=False),
        Binding("delete,backspace", "ask('delete')", "Delete preset", id="presets.delete", show=False),
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
        self.show(presets, loaded)

    def show(self, presets: Iterable[Preset], loaded: str | None, cursor: str = "") -> None:
        """`cursor` "" keeps the highlighted name or, if it is gone, its index; initially the loaded preset."""
        before = cursor or (self.cursor.name if self.cursor else loaded)
        place = list(self._presets.values()).index(self.cursor) if self.cursor else 0
        self._presets = {f"{'builtin' if preset.builtin else 'own'}/{preset.name}": preset for preset in presets}
        builtin = [self._option(key, loaded) for key, preset in self._presets.items() if preset.builtin]
        own = [self._option(key, loaded) for key, preset in self._presets.items() if not preset.builtin]
        self.clear_options()
        self.add_options([_heading("Built-in, read-only"), *builtin, _heading("Yours"), *own])
        if not own:
            self.add_option(Option(Content("None yet: Ctrl+S saves the form."), disabled=True))
        keys = [key for key, preset in self._presets.items() if preset.name == before]
        keys = keys or list(self._presets)[: place + 1][-1:]
        self.highlighted = self.get_option_index(keys[0]) if keys else None

    @property
    def cursor(self) -> Preset | None:
        option = self.highlighted_option
        return self._presets.get(option.id or "") if option else None

    def action_ask(self, change: Change) -> None:
        if self.cursor is not None:
            self.post_message(self.ChangeRequested(self.cursor, change))

    @on(events.Focus)
    @on(events.Blur)
    @on(events.Resize)
    def _show_hints(self) -> None:
        room = self.size.width - BESIDE_HINT_CELLS
        hint = next((hint for hint in HINTS if len(hint) <= room), "")
        self.border_subtitle = hint if self.has_focus else ""

    def _option(self, key: str, loaded: str | None) -> Option:
        preset = self._presets[key]
        return Option(_entry(preset, preset.name == loaded), id=key)

    @on(OptionList.OptionSelected)
    def _post_choice(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if event.option_id is not None:
            self.post_message(self.PresetChosen(self._presets[event.option_id]))


def _entry(preset: Preset, loaded: bool) -> Content:
    name, summary = sanitize(preset.name), sanitize(preset.summary)
    if preset.error is not None:
        return Content.assemble(("✗ ", "$text-error"), (name, "bold"), f"\ncannot be used; {summary}")
    # Not fainter than the name: unreadable on the cursor's background in some themes.
    return Content.assemble((name, "bold"), "  ✓ loaded" if loaded else "", "\n", summary)


def _heading(words: str) -> Option:
    return Option(Content.styled(words, "$text-primary"), disabled=True)
