"""The form: every configuration key, in groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message

from trainers.contract.catalog import BACKENDS, MODELS
from trainers.contract.config import OPTIONS
from trainers.contract.data_catalog import DATASETS, NPZ
from trainers.contract.machine import Machine
from trainers.contract.options import GROUPS
from tuiapp.state.draft import Draft
from tuiapp.state.text import sanitize
from tuiapp.widgets.gpu_checklist import GpuChecklist
from tuiapp.widgets.option_field import OptionField

NOTES: dict[str, dict[str, str]] = {
    "backend": {backend.name: backend.summary for backend in BACKENDS.values()},
    "model": {model.name: model.summary for model in MODELS.values()},
    "dataset": {
        **{dataset.name: dataset.summary for dataset in DATASETS.values()},
        NPZ: "your own .npz: x_train, y_train, x_test and y_test",
    },
}
"""Configuration key → value → one line of what it is."""


class ConfigForm(VerticalScroll, can_focus=False):
    """Shows a draft's keys in groups, hides what does not apply, and tells what the user changes."""

    BINDING_GROUP_TITLE = "Form"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "app.focus_previous", "Previous field", show=False),
        Binding("down", "app.focus_next", "Next field", show=False),
    ]

    DEFAULT_CSS = """
    ConfigForm {
        layout: grid;
        grid-size: 1;
        grid-rows: auto;
        grid-gutter: 0 2;

        .group {
            height: auto;
            border-top: solid $primary 50%;
            border-title-color: $text-primary;
            border-title-style: bold;
        }
    }
    """

    class ConfigChanged(Message):
        """The user changed a field; `ConfigForm.texts` has what all of them show now."""

    def __init__(self, *, texts: Mapping[str, str]) -> None:
        """Make the form.

        Args:
            texts: Configuration key → what its field shows at first.
        """
        super().__init__()
        self._first_texts = texts
        self._machine: Machine | None = None

    def compose(self) -> ComposeResult:  # noqa: D102
        unavailable = {name: reason for name, backend in BACKENDS.items() if (reason := backend.unavailable())}
        for group in GROUPS:
            with Vertical(classes="group") as box:
                box.border_title = group
                for key, option in OPTIONS.items():
                    if option.group == group:
                        yield OptionField(
                            option=option,
                            text=self._first_texts[key],
                            notes=NOTES.get(key),
                            unavailable=unavailable if key == "backend" else None,
                        )

    @property
    def texts(self) -> dict[str, str]:
        """Configuration key → what its field shows."""
        return {field.option.key: field.text for field in self._fields()}

    def load(self, texts: Mapping[str, str]) -> None:
        """Fill all fields; says nothing to those who wait for the user's changes."""
        for field in self._fields():
            field.show_text(texts[field.option.key])

    def show(self, draft: Draft) -> None:
        """Mark what differs from the preset and what is wrong, and hide what does not apply."""
        for field in self._fields():
            key = field.option.key
            field.changed = key in draft.changed
            field.problem = draft.problems.get(key, "")
            field.display = key not in draft.hidden
        for checklist in self.query(GpuChecklist):
            checklist.display = "device_ids" not in draft.hidden
            checklist.show(draft.config.device_ids)

    async def show_machine(self, machine: Machine) -> None:
        """List the machine's GPUs, where there are any, for choosing among them."""
        await self.query(GpuChecklist).remove()
        if machine.gpus:
            field = self._field("device_ids")
            assert isinstance(field.parent, Vertical)
            await field.parent.mount(GpuChecklist(gpus=machine.gpus), after=field)

    def focus_field(self, key: str) -> None:
        """Put the cursor into a key's field."""
        self._field(key).focus_control()

    @on(events.DescendantFocus)
    @on(events.DescendantBlur)
    def _show_help_of_focus(self) -> None:
        focused = next((field for field in self._fields() if field.has_focus_within), None)
        self.border_subtitle = Content(sanitize(focused.help)) if focused else ""

    @on(OptionField.Changed)
    def _tell_of_change(self, event: OptionField.Changed) -> None:
        event.stop()
        self._show_help_of_focus()
        self.post_message(self.ConfigChanged())

    @on(GpuChecklist.GpusChosen)
    def _take_gpus(self, event: GpuChecklist.GpusChosen) -> None:
        event.stop()
        self._field("device_ids").show_text(",".join(event.device_ids))
        self.post_message(self.ConfigChanged())

    def _fields(self) -> Iterator[OptionField]:
        yield from self.query(OptionField)

    def _field(self, key: str) -> OptionField:
        return next(field for field in self._fields() if field.option.key == key)
