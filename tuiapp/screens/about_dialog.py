"""Asks for a run's name, group, tags and note, of several runs for group and tags, and writes them."""

from __future__ import annotations

from typing import Any, ClassVar

from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Input, Label, Static, TextArea

from tuiapp.actions import annotate
from tuiapp.library.in_thread import in_thread
from tuiapp.screens.acting import perform, tell
from tuiapp.screens.dialog import Form
from tuiapp.terminal.slow_disk import patiently
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import (
    MAX_NAME_CHARACTERS,
    About,
    AboutError,
    Change,
    split_tags,
)
from tuiapp.trainers.state.text import plural, sanitize


class AboutDialog(Form[Change | None]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+s", "accept", "Save", id="dialog.save")]

    def __init__(self, title: str, about: About, script_name: str = "", *, several: bool = False) -> None:
        """`script_name` is what the run's script calls it. Of several runs only what they have in common is asked."""
        super().__init__(title, "Save")
        self._about, self._script_name, self._several = about, script_name, several

    def fields(self) -> ComposeResult:
        if not self._several:
            yield Label("Name")
            name = sanitize(self._script_name, MAX_NAME_CHARACTERS) or "what to call it"
            yield Input(self._about.name, placeholder=name, max_length=MAX_NAME_CHARACTERS, id="name")
        yield Label(
            "Tags that all have, and their group" if self._several else "Tags, and the group that it belongs to"
        )
        with Horizontal():
            yield Input(" ".join(self._about.tags), placeholder="words: sweep lr", id="tags")
            yield Input(self._about.group, placeholder="a word", id="group")
        if not self._several:
            yield Label("Note")
            yield TextArea(self._about.note, id="note", soft_wrap=True)
        yield Static(id="verdict", markup=False)

    @on(TextArea.Changed)
    def _judge_note(self) -> None:
        self.judge()

    def result(self) -> Change:
        """Returns only what differs from what was shown: somebody else may have changed the rest meanwhile."""
        about, tags = self._about, split_tags(self.query_one("#tags", Input).value)
        group = self.query_one("#group", Input).value.strip()
        name = note = None
        if not self._several:
            name, note = self.query_one("#name", Input).value.strip(), self.query_one("#note", TextArea).text
        return Change(
            name=name if name != about.name else None,
            note=note if note != about.note else None,
            group=group if group != about.group else None,
            tags=tuple(tag for tag in tags if tag not in about.tags),
            untags=tuple(tag for tag in about.tags if tag not in tags),
        )

    def fault(self) -> str:
        try:
            self.result().of(self._about)
        except AboutError as error:
            return str(error)
        return ""


async def ask_about(app: App[Any], *runs: RunDir, script_name: str = "") -> bool:
    """Changes what runs are called, as `AboutDialog` asks; returns whether it did. Must run in a worker."""
    about, damaged = await patiently(app, in_thread(annotate.in_common, runs))
    for problem in damaged:
        tell(app, problem, "warning")
    several = len(runs) > 1
    title = plural(len(runs), "run") if several else runs[0].run_id
    change = await app.push_screen_wait(AboutDialog(title, about, script_name, several=several))
    if change is None or change == Change():
        return False
    return bool((await perform(app, annotate.do, runs, change, title="Saved")).done)
