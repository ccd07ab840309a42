"""Asks with which configuration a run goes on: more epochs, and whatever else a resume may change."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Input, Static

from trainers.config.machine import Machine
from trainers.config.run_config import KEPT, OPTIONS, RunConfig, changed_keys
from trainers.state.resume_point import doubled, has_more
from trainers.state.text import join_words, plural
from tuiapp.screens.dialog import Form
from tuiapp.view.draft import Draft, examine, to_texts
from tuiapp.widgets.option_field import OptionField

FIRST = ("epochs", "max_steps", "arguments", "learning_rate", "devices")
"""Keys that are changed most often."""


class Fields(VerticalScroll, can_focus=False):
    """The arrow keys move through its fields, which scrolls it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "app.focus_previous", "Previous", id="dialog.previous", show=False),
        Binding("down", "app.focus_next", "Next", id="dialog.next", show=False),
    ]


class ResumeDialog(Form[RunConfig | None]):
    """A field for each key that the run does not keep; a run that is complete is offered twice as much training."""

    MANUAL = "checkpoints"

    def __init__(
        self, title: str, config: RunConfig, machine: Machine, status: str, step: int | None, done: int
    ) -> None:
        """`step` is that of the checkpoint, None of a script; `done` the last one that was made."""
        super().__init__(title, "Start again" if step is None else "Resume")
        self._config, self._machine, self._status, self._step, self._done = config, machine, status, step, done
        self._texts = to_texts(config)
        self._draft = examine(self._texts, config, machine)
        if step is not None and not self._has_more:
            key, twice = doubled(config, step)
            self._texts[key] = str(twice)
            self._draft = examine(self._texts, config, machine)

    def fields(self) -> ComposeResult:
        hidden = self._draft.hidden
        with Fields(id="fields"):
            for key in (*FIRST, *(key for key in OPTIONS if key not in (*FIRST, *KEPT))):
                yield OptionField(OPTIONS[key], self._texts[key], hidden=key in hidden)
        yield Static(id="verdict", markup=False)

    @on(OptionField.Changed)
    def _examine(self) -> None:
        before = self._texts
        self._texts = before | {field.option.key: field.text for field in self.query(OptionField)}
        moved = any(self._texts[key] != before[key] for key in ("platform", "devices"))
        if moved and self._texts["device_ids"] == before["device_ids"] != "":
            # The GPUs that it had: new ones are chosen.
            self._texts["device_ids"] = ""
            self.query_one("#field-device-ids", OptionField).show_text("")
        self._draft = examine(self._texts, self._config, self._machine)
        self.judge()

    @on(Input.Changed)
    def judge(self) -> None:
        super().judge()
        draft = self._draft
        for field in self.query(OptionField):
            key = field.option.key
            # The verdict has the problem, whether or not the field is in sight.
            field.show(hidden=key in draft.hidden, changed=key in draft.changed, problem="")

    def fault(self) -> str:
        draft = self._draft
        if draft.axes:
            return f"{draft.axes[0].key}: one run takes one value."
        if draft.problems:
            key, problem = next(iter(draft.problems.items()))
            return f"{key}: {problem}" if key else problem
        if self._step is None:
            complete = self._status == "completed" and not changed_keys(draft.config, self._config)
            return "The script has completed: to go on it needs other arguments." if complete else ""
        if self._has_more:
            return ""
        key, _ = doubled(draft.config, self._step)
        return f"It has made all its {plural(draft.total_steps or self._step, 'step')}: enter more {_label(key)}."

    def verdict(self, fault: str) -> tuple[str, str]:
        if fault:
            return super().verdict(fault)
        return join_words(self._what_comes(self._draft)), ""

    def result(self) -> RunConfig:
        return self._draft.config

    @property
    def _has_more(self) -> bool:
        total = self._draft.total_steps
        return self._step is None or total is None or has_more(self._step, total, self._status)

    def _what_comes(self, draft: Draft) -> list[str]:
        if self._step is None:
            return ["The script starts in the same run with TUIAPP_RESUME=1, and loads what it has saved."]
        total, config = draft.total_steps, draft.config
        words = [f"from step {self._step:,}" + (f" to {total:,}" if total else "")]
        if self._done > self._step:
            words.append(f"the steps up to {self._done:,} are repeated")
        if config.schedule != "constant" and changed_keys(config, self._config).keys() & {"epochs", "max_steps"}:
            words.append(f"the {config.schedule} schedule is of all {total:,} steps" if total else "")
        return words


def _label(key: str) -> str:
    return OPTIONS[key].label.lower()
