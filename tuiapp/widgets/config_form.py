"""The form: every configuration key, in groups."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Region
from textual.message import Message
from textual.widgets import Static

from trainers.config.catalog import BACKENDS, MODELS
from trainers.config.datasets import DATASETS, SOURCES
from trainers.config.machine import Machine
from trainers.config.options import GROUPS
from trainers.config.user_code import PY
from trainers.state.text import join_words, sanitize
from tuiapp.library.environments import find_environments
from tuiapp.view.draft import FIELDS, Draft, several_words
from tuiapp.widgets.gpu_checklist import GpuChecklist
from tuiapp.widgets.option_field import OptionField

NOTES: dict[str, dict[str, str]] = {
    "backend": {backend.name: backend.summary for backend in BACKENDS.values()},
    "model": {
        **{model.name: model.summary for model in MODELS.values()},
        PY: "your own, FILE:NAME: (shape, classes) → module",
    },
    "dataset": {
        **{dataset.name: dataset.summary for dataset in DATASETS.values()},
        **{prefix: source.note for prefix, source in SOURCES.items()},
    },
}
"""Configuration key → value → one-line description."""

BORDER_CELLS = 6
"""Of the border beside its subtitle."""


class ConfigForm(VerticalScroll, can_focus=False):
    """Shows a draft's keys in groups."""

    BINDING_GROUP_TITLE = "Form"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "app.focus_previous", "Previous field", id="form.previous-field", show=False),
        Binding("down", "app.focus_next", "Next field", id="form.next-field", show=False),
    ]

    DEFAULT_CSS = """
    ConfigForm {
        layout: grid;
        grid-size: 1;
        grid-rows: auto;
        grid-gutter: 0 2;
        layers: default help;

        #help {
            layer: help;
            dock: bottom;
            height: 0;
            color: $text-muted;
            background: $surface;
            padding: 0 1;

            &.-long { height: auto; }
        }

        .group {
            height: auto;
            border-top: solid $primary 50%;
            border-title-color: $text-primary;
            border-title-style: bold;
        }
    }
    """

    class ConfigChanged(Message):
        """The user changed a field; `ConfigForm.texts` has the current texts."""

    def __init__(self, *, texts: Mapping[str, str], draft: Draft) -> None:
        super().__init__()
        self._machine: Machine | None = None
        self._environments = find_environments()
        self._fields = {
            key: OptionField(
                option,
                texts.get(key, ""),
                hidden=key in draft.hidden,
                notes=self._backend_notes if key == "backend" else NOTES.get(key),
                unavailable=self._unavailable if key == "backend" else None,
            )
            for key, option in FIELDS.items()
        }

    def compose(self) -> ComposeResult:
        for name in GROUPS:
            fields = [field for field in self._fields.values() if field.option.group == name]
            group = Vertical(*fields, id=f"group-{name.lower()}", classes="group")
            group.border_title = Content(f" {name} ")
            yield group
        yield Static(id="help", markup=False)

    @property
    def _backend_notes(self) -> dict[str, str]:
        words = {one.backend: one.words(self._machine) for one in self._environments}
        return {name: f"{note} · in {words[name]}" if words[name] else note for name, note in NOTES["backend"].items()}

    @property
    def _unavailable(self) -> dict[str, str]:
        return {one.backend: one.unavailable for one in self._environments if one.unavailable}

    def show_environments(self) -> None:
        """Shows what is known by now of the backends' environments."""
        self._environments = find_environments()
        self._fields["backend"].show_choices(self._backend_notes, self._unavailable)

    @property
    def texts(self) -> dict[str, str]:
        return {key: field.text for key, field in self._fields.items()}

    def load(self, texts: Mapping[str, str]) -> None:
        """Shows the texts of some fields; the others keep theirs."""
        for key, text in texts.items():
            self._fields[key].show_text(text)

    def show(self, draft: Draft) -> None:
        for key, field in self._fields.items():
            field.show(
                hidden=key in draft.hidden,
                changed=key in draft.changed,
                problem=draft.problems.get(key, ""),
                several=several_words(draft, key),
            )
        for group in self.query(".group"):
            group.display = any(field.display for field in group.query(OptionField))
        for checklist in self.query(GpuChecklist):
            checklist.display = "device_ids" not in draft.hidden
            checklist.show(draft.config.device_ids)

    async def show_machine(self, machine: Machine) -> None:
        self._machine = machine
        self.show_environments()
        if any(checklist.update(machine.gpus) for checklist in self.query(GpuChecklist)):
            return
        await self.query(GpuChecklist).remove()
        if machine.gpus:
            field = self._fields["device_ids"]
            assert isinstance(field.parent, Vertical)
            await field.parent.mount(GpuChecklist(gpus=machine.gpus), after=field)

    def focus_field(self, key: str) -> None:
        self._fields[key].focus_control()

    def focus_first(self, keys: Container[str]) -> None:
        if key := next((key for key in FIELDS if key in keys), None):
            self.focus_field(key)

    @on(GpuChecklist.OptionHighlighted)
    @on(events.DescendantFocus)
    @on(events.DescendantBlur)
    @on(events.Resize)
    def _show_help_of_focus(self) -> None:
        focused = next((field for field in self._fields.values() if field.has_focus_within), None)
        listed = next((listed for listed in self.query(GpuChecklist) if listed.has_focus), None)
        words = sanitize(focused.help if focused else listed.details if listed else "")
        width, height = self.outer_size
        hinted = join_words([words, focused.hint if focused else ""])
        # Not worth a line of its own.
        words = hinted if len(hinted) <= width - BORDER_CELLS else words
        # What the border has no room for is wrapped above it.
        long = len(words) > width - BORDER_CELLS
        for shown in self.query("#help").results(Static):
            # Hiding it would repaint the whole form.
            shown.set_class(long, "-long")
            if long:
                shown.update(words)
        # Setting `border_subtitle` repaints the whole form.
        self._border_subtitle = Content("" if long else words)
        self.refresh(Region(0, height - 1, width, 1).translate(-self.content_offset))

    def on_option_field_changed(self, event: OptionField.Changed) -> None:
        event.stop()
        self._show_help_of_focus()
        self.post_message(self.ConfigChanged())

    @on(GpuChecklist.GpusChosen)
    def _take_gpus(self, event: GpuChecklist.GpusChosen) -> None:
        event.stop()
        self._fields["device_ids"].show_text(",".join(event.device_ids))
        self.post_message(self.ConfigChanged())
