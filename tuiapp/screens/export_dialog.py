"""Asks where to write runs: their figures, which part and in which format, or a report of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Input, Label, RadioButton, RadioSet, Static

from tuiapp.actions.export import file_name, targets
from tuiapp.actions.report import check_report
from tuiapp.library.export import ExportError, check_target
from tuiapp.library.exporters import EXPORTERS, TABLES, What
from tuiapp.screens.dialog import Form
from tuiapp.trainers.state.text import plural

SUFFIXES = {row.suffix for row in EXPORTERS.values() if row.suffix}


class Wanted(NamedTuple):
    path: Path
    """The file, or the directory for several runs."""
    what: What
    form: str


class ShapedRadioButton(RadioButton):
    """A radio button that shows by its shape whether it is on; Textual's shows that by colour alone."""

    @property
    def _button(self) -> Content:
        button = super()._button
        return button if self.value else Content(button.plain.replace(self.BUTTON_INNER, "○"), list(button.spans))


class ExportDialog(Form[Wanted | None]):
    MANUAL = "export"

    def __init__(self, run_ids: Sequence[str]) -> None:
        """Asks for a file for one run; for several, which have names of their own, for a folder."""
        super().__init__(f"Export {len(run_ids)} runs" if len(run_ids) > 1 else f"Export {run_ids[0]}", "Export")
        self._run_ids = run_ids
        self._suggested = self._suggest("steps", "csv")

    def fields(self) -> ComposeResult:
        with Horizontal(id="choices"):
            with RadioSet(id="what") as what:
                what.border_title = "What"
                for name in TABLES:
                    yield ShapedRadioButton(name, value=name == "steps")
            with RadioSet(id="format") as form:
                form.border_title = "Format"
                for form_name in EXPORTERS:
                    yield ShapedRadioButton(form_name, value=form_name == "csv")
        yield Label("Folder" if len(self._run_ids) > 1 else "Path")
        yield Input(self._suggested, id="path", max_length=1000)
        yield Static(id="verdict", markup=False)

    @on(RadioSet.Changed)
    def _rename(self) -> None:
        box, suggested = self.query_one("#path", Input), self._suggest(self._what, self._format)
        if box.value == self._suggested:
            box.value = suggested
        elif len(self._run_ids) == 1 and Path(box.value).suffix in SUFFIXES:
            box.value = str(Path(box.value).with_suffix(EXPORTERS[self._format].suffix))
        self._suggested = suggested
        self.judge()

    def verdict(self, fault: str) -> tuple[str, str]:
        further = len(self._run_ids) - 1
        path = "" if fault else f"✓ {self._paths[0]}{f' and {further} further' if further else ''}"
        return (path, "") if path else super().verdict(fault)

    def result(self) -> Wanted:
        path = Path(os.path.expanduser(self.query_one("#path", Input).value.strip())).absolute()
        return Wanted(path, self._what, self._format)

    @property
    def _paths(self) -> list[Path]:
        return targets(self._run_ids, *self.result())

    @property
    def _what(self) -> What:
        return TABLES[max(0, self.query_one("#what", RadioSet).pressed_index)]

    @property
    def _format(self) -> str:
        return [*EXPORTERS][max(0, self.query_one("#format", RadioSet).pressed_index)]

    def _suggest(self, what: What, form: str) -> str:
        return file_name(self._run_ids[0], what, form) if len(self._run_ids) == 1 else "."

    def fault(self) -> str:
        if not self.query_one("#path", Input).value.strip():
            return "Enter a path."
        try:
            for path in self._paths:
                check_target(path, self._format, self._what, force=False)
        except ExportError as error:
            return str(error)
        return ""


class ReportDialog(Form[Path | None]):
    MANUAL = "export"

    def __init__(self, stem: str, runs: int) -> None:
        """`stem` is what the file is suggested to be called, but for its suffix and what tells it from earlier ones."""
        super().__init__(f"Report of {plural(runs, 'run')}", "Write")
        self._stem, self._runs = stem, runs

    def fields(self) -> ComposeResult:
        names = (f"{self._stem}{f'-{number}' if number > 1 else ''}.html" for number in count(1))
        yield Label("Path: a page (.html), or Markdown (.md) with figures beside it")
        yield Input(next(name for name in names if not os.path.lexists(name)), id="path", max_length=1000)
        yield Static(id="verdict", markup=False)

    def verdict(self, fault: str) -> tuple[str, str]:
        return super().verdict(fault) if fault else (f"✓ {self.result()}", "")

    def result(self) -> Path:
        return Path(os.path.expanduser(self.query_one("#path", Input).value.strip())).absolute()

    def fault(self) -> str:
        try:
            check_report(self.result(), self._runs, force=False)
        except ExportError as error:
            return str(error)
        return ""
