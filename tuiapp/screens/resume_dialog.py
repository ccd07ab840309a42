"""Asks with which configuration runs go on: more epochs, and whatever else a resume may change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static

from tuiapp.actions.action import some
from tuiapp.actions.resume import Resumable, Wanted, sentence
from tuiapp.screens.dialog import Form
from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.config.run_config import KEPT, OPTIONS, changed_keys
from tuiapp.trainers.state.resume_point import SCRIPT_COMPLETED, all_made, doubled
from tuiapp.trainers.state.run_state import has_more
from tuiapp.trainers.state.text import join_words, plural, sanitize
from tuiapp.view.draft import Draft, examine, to_texts
from tuiapp.widgets.option_field import OptionField

LENGTHS = ("epochs", "max_steps")
"""Keys of how long a run is: they have a field where the runs differ in them, too."""

FIRST = (*LENGTHS, "arguments", "learning_rate", "devices")
"""Keys that are changed most often."""


class Fields(VerticalScroll, can_focus=False):
    """The arrow keys move through its fields, which scrolls it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "app.focus_previous", "Previous", id="dialog.previous", show=False),
        Binding("down", "app.focus_next", "Next", id="dialog.next", show=False),
    ]


class ResumeDialog(Form[Wanted | None]):
    """A field for each key that runs do not keep; if all are complete, twice as much training is offered.

    Of several runs it has the keys in which they agree, and how long they are. What is changed is so in each; those
    that cannot go on with it are named, and stay as they are.
    """

    MANUAL = "checkpoints"

    def __init__(
        self, title: str, runs: Sequence[Resumable], machine: Machine, refused: Sequence[tuple[str, str]] = ()
    ) -> None:
        """`refused` has the names of further runs, each with why it cannot go on."""
        scripts = all(run.step is None for run in runs)
        super().__init__(title, "Start again" if scripts else "Resume")
        self._runs, self._machine, self._refused = runs, machine, refused
        self._own = [to_texts(run.config) for run in runs]
        first, *further = self._own
        self._differ = [key for key in first if any(other[key] != first[key] for other in further)]
        keys = [key for key in first if key not in KEPT and (key in LENGTHS or key not in self._differ)]
        self._texts = {key: "" if key in self._differ else first[key] for key in keys}
        self._agreed = dict(self._texts)
        self._drafts = self._examined()
        if not any(map(_has_more, runs, self._drafts)):
            longer = dict[str, int]()
            for run in runs:
                key, twice = doubled(run.config, run.step or 0)
                longer[key] = max(twice, longer.get(key, 0))
            self._texts.update({key: str(value) for key, value in longer.items()})
            self._drafts = self._examined()

    @property
    def _is_of_several(self) -> bool:
        return len(self._runs) + len(self._refused) > 1

    def _examined(self) -> list[Draft]:
        """Returns what each run's configuration would be."""
        changed = {key: text for key, text in self._texts.items() if text != self._agreed.get(key)}
        return [
            examine({**texts, **changed}, run.config, self._machine, resumes=True)
            for run, texts in zip(self._runs, self._own, strict=True)
        ]

    def fields(self) -> ComposeResult:
        with Fields(id="fields", classes="-several" if self._is_of_several else ""):
            for key in (*FIRST, *(key for key in OPTIONS if key not in FIRST)):
                if key in self._agreed:
                    yield OptionField(OPTIONS[key], self._texts[key], hidden=self._is_hidden(key))
        if self._is_of_several:
            yield VerticalScroll(Static(id="who", markup=False), id="runs")
        yield Static(id="verdict", markup=False)

    def _is_hidden(self, key: str) -> bool:
        return all(key in draft.hidden for draft in self._drafts)

    @on(OptionField.Changed)
    def _examine(self) -> None:
        before = self._texts
        self._texts = before | {field.option.key: field.text for field in self.query(OptionField)}
        moved = any(self._texts.get(key) != before.get(key) for key in ("platform", "devices"))
        if moved and self._texts.get("device_ids") == before.get("device_ids") != "":
            # The GPUs that they had: new ones are chosen.
            self._texts["device_ids"] = ""
            for field in self.query("#field-device-ids").results(OptionField):
                field.show_text("")
        self._drafts = self._examined()
        self.judge()

    @on(Input.Changed)
    def judge(self) -> None:
        super().judge()
        for field in self.query(OptionField):
            key = field.option.key
            # The verdict has the problem, whether or not the field is in sight.
            changed = any(key in draft.changed for draft in self._drafts)
            field.show(hidden=self._is_hidden(key), changed=changed, problem="")
        for who in self.query("#who").results(Static):
            who.update(Content("\n").join(map(Content, self._who())))

    def _faults(self) -> list[str]:
        return [_fault(run, draft) for run, draft in zip(self._runs, self._drafts, strict=True)]

    def fault(self) -> str:
        faults = self._faults()
        if not all(faults):
            return ""
        return faults[0] if len({*faults}) == 1 else "None of these runs can go on so."

    def _who(self) -> Iterator[str]:
        """Yields which of several runs go on and from where, and which do not and why."""
        comes, refused = dict[str, list[str]](), dict[str, list[str]]()
        for run, draft, fault in zip(self._runs, self._drafts, self._faults(), strict=True):
            by_reason, reason = (refused, fault) if fault else (comes, join_words(_what_comes(run, draft)))
            by_reason.setdefault(reason, []).append(run.name)
        for name, why in self._refused:
            refused.setdefault(why, []).append(name)
        for sign, by_reason in (("✗", refused), ("✓", comes)):
            for reason, names in by_reason.items():
                yield sanitize(f"{sign} {some(names, ', ')}: {reason}", 400)
        kept = [key for key in self._differ if key not in LENGTHS or not self._texts[key]]
        if kept:
            yield f"Each keeps its own: {', '.join(kept)}."

    def verdict(self, fault: str) -> tuple[str, str]:
        if fault:
            return super().verdict(fault)
        if self._is_of_several:
            going = sum(not fault for fault in self._faults())
            return f"{going} of {plural(len(self._runs) + len(self._refused), 'run')} go on at once.", ""
        what_comes = join_words(_what_comes(self._runs[0], self._drafts[0]))
        return (what_comes if self._runs[0].step is None else f"It goes on {what_comes}"), ""

    def result(self) -> Wanted:
        checked = zip(self._runs, self._drafts, self._faults(), strict=True)
        return [(run, draft.config) for run, draft, fault in checked if not fault]


def _has_more(run: Resumable, draft: Draft) -> bool:
    total = draft.total_steps
    return run.step is None or total is None or has_more(run.step, total, run.status)


def _fault(run: Resumable, draft: Draft) -> str:
    """Says why a run cannot go on so; "" if it can."""
    if draft.axes:
        return f"{draft.axes[0].key}: one run takes one value."
    if draft.problems:
        key, problem = next(iter(draft.problems.items()))
        return f"{key}: {problem}" if key else problem
    if run.step is None:
        complete = run.status == "completed" and not changed_keys(draft.config, run.config)
        return sentence(SCRIPT_COMPLETED) if complete else ""
    if _has_more(run, draft):
        return ""
    key, _ = doubled(draft.config, run.step)
    return f"{sentence(all_made(draft.total_steps or run.step))} Enter more {OPTIONS[key].label.lower()}."


def _what_comes(run: Resumable, draft: Draft) -> list[str]:
    if run.step is None:
        return ["The script starts in the same run with TUIAPP_RESUME=1, and loads what it has saved."]
    total, config = draft.total_steps, draft.config
    parts = [f"from step {run.step:,}" + (f" to {total:,}" if total else "")]
    if run.done > run.step:
        parts.append(f"the steps up to {run.done:,} are repeated")
    if config.schedule != "constant" and changed_keys(config, run.config).keys() & {*LENGTHS}:
        parts.append(f"the {config.schedule} schedule is of all {total:,} steps" if total else "")
    return parts
