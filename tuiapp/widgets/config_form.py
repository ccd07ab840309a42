"""The form: every configuration key, in groups."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Region
from textual.message import Message
from textual.widgets import Static

from tuiapp.library.environments import find_environments
from tuiapp.trainers.config.catalog import BACKENDS, MODELS
from tuiapp.trainers.config.datasets import DATASETS, SOURCES
from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.config.options import GROUPS, Option, format_value
from tuiapp.trainers.config.user_code import PY
from tuiapp.trainers.state.text import join_words, sanitize
from tuiapp.view.draft import FIELDS, TRIALS, Draft, several_words
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

ADVANCED = "Advanced"
"""The last group of the form: the rare keys."""

SEARCHES = f"set {TRIALS.label} for a search"

BORDER_CELLS = 6
"""Cells of the border beside its subtitle."""


class FoldLine(Static, can_focus=True):
    """Folds the rare keys that have their defaults, or shows them."""

    BINDING_GROUP_TITLE = "Advanced"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,space", "fold", "Show or fold", id="advanced.fold", show=False),
    ]

    DEFAULT_CSS = """
    FoldLine {
        height: 1;
        text-wrap: nowrap;
        text-overflow: ellipsis;
        color: $text-muted;
        pointer: pointer;
        &:focus { background: $primary; color: $text; text-style: bold; }
    }
    """

    class Pressed(Message):
        """The user wants the rare keys shown, or folded."""

    def action_fold(self) -> None:
        self.post_message(self.Pressed())

    def on_click(self) -> None:
        self.action_fold()

    def show(self, labels: Sequence[str], *, is_open: bool) -> None:
        """Shows the line; `labels` are of the fields that are folded, or would be."""
        named = "" if is_open else f": {', '.join(labels)}"
        words = Content(f"{'▾' if is_open else '▸'} {ADVANCED}{named}")
        if self.content != words:
            self.update(words)
        self.display = bool(labels)


class ConfigForm(VerticalScroll, can_focus=False):
    """Shows a draft's keys in groups; the rare ones in a group of their own, folded while they have their defaults."""

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
        self._draft = draft
        self._is_open = self._is_roomy = False
        """Whether all rare fields are shown, and whether there is room for them."""
        self._environments = find_environments()
        self._fields = {
            key: OptionField(
                option,
                text := texts.get(key, format_value(option.default)),
                hidden=key in draft.hidden or (option.is_rare and is_default(option, text)),
                notes=self._backend_notes if key == "backend" else NOTES.get(key),
                unavailable=self._unavailable if key == "backend" else None,
            )
            for key, option in FIELDS.items()
        }

    def compose(self) -> ComposeResult:
        for name in (*GROUPS, ADVANCED):
            fields = [
                field
                for field in self._fields.values()
                if name == (ADVANCED if field.option.is_rare else field.option.group)
            ]
            fold = [FoldLine()] if name == ADVANCED else []
            group = Vertical(*fold, *fields, id=f"group-{name.lower()}", classes="group")
            group.border_title = Content(f" {name} " if name in GROUPS else "")
            yield group
        yield Static(id="help", markup=False)

    @property
    def _backend_notes(self) -> dict[str, str]:
        texts = {environment.backend: environment.words(self._machine) for environment in self._environments}
        return {name: f"{note} · {texts[name]}" if texts[name] else note for name, note in NOTES["backend"].items()}

    @property
    def _unavailable(self) -> dict[str, str]:
        return {
            environment.backend: environment.unavailable
            for environment in self._environments
            if environment.unavailable
        }

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
        self._draft = draft
        folded = {
            key: field
            for key, field in self._fields.items()
            if field.option.is_rare
            and key not in draft.hidden | draft.changed | draft.problems.keys()
            and is_default(field.option, field.text)
            # Not under the fingers of who types.
            and not (field.display and field.has_focus_within)
        }
        for fold in self.query(FoldLine):
            fold.show([field.option.label for field in folded.values()], is_open=self._is_open)
        for key, field in self._fields.items():
            field.show(
                hidden=key in draft.hidden or (key in folded and not self._is_open),
                changed=key in draft.changed,
                problem=draft.problems.get(key, ""),
                several=several_words(draft, key),
            )
        for group in self.query(".group"):
            shown = [field for field in group.query(OptionField) if field.display]
            group.display = bool(shown) or any(fold.display for fold in group.query(FoldLine))
            for field in group.query(OptionField):
                field.heading = field.option.group if field in shown[:1] and not field.option.is_rare else ""
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
        """Focuses a field that applies; of a rare one all are shown."""
        field = self._fields[key]
        if not field.display:
            self._is_open = True
            self.show(self._draft)
            # Its control is made by now.
            self.call_after_refresh(field.focus_control)
        else:
            field.focus_control()

    def give_room(self, roomy: bool) -> None:
        """Shows the rare fields where there is room for them."""
        if roomy != self._is_roomy:
            self._is_open = self._is_roomy = roomy
            self.show(self._draft)

    def on_fold_line_pressed(self, event: FoldLine.Pressed) -> None:
        event.stop()
        self._is_open = not self._is_open
        self.show(self._draft)

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
        text = sanitize(focused.help if focused else listed.details if listed else "")
        width, height = self.outer_size
        searches = SEARCHES if focused and focused.several and not self._draft.search else ""
        hinted = join_words([text, focused.hint if focused else "", searches])
        # The hint is not worth a line of its own; the values are said below, too.
        text = hinted if len(hinted) <= width - BORDER_CELLS else searches or text
        # What the border has no room for is wrapped above it.
        long = len(text) > width - BORDER_CELLS
        for shown in self.query("#help").results(Static):
            # Hiding it would repaint the whole form.
            shown.set_class(long, "-long")
            if long:
                shown.update(text)
        # Setting `border_subtitle` repaints the whole form.
        self._border_subtitle = Content("" if long else text)
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


def is_default(option: Option, text: str) -> bool:
    """Whether a field's text is the key's default."""
    return text == format_value(option.default)
