"""Asks where to write a report of one or more runs."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

from textual.app import ComposeResult
from textual.widgets import Input, Label, Static

from tuiapp.actions.report import check_report
from tuiapp.library.export import ExportError
from tuiapp.screens.dialog import Form
from tuiapp.trainers.state.text import plural


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
