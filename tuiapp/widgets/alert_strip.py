"""The alert line: what the user should know first; a key or a click dismisses it until the text changes."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from tuiapp.trainers.state.condition import headline
from tuiapp.trainers.state.run_state import RunState


class AlertStrip(Static):
    """Shows the most severe alert, the failure or the final summary; hidden when there is none."""

    DEFAULT_CSS = """
    AlertStrip {
        height: auto;
        max-height: 3;
        padding: 0 1;
        display: none;

        &.-good { background: $success-muted; color: $text-success; }
        &.-info { background: $primary-muted; color: $text-primary; }
        &.-warning { background: $warning-muted; color: $text-warning; }
        &.-error { background: $error-muted; color: $text-error; text-style: bold; }
    }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes, markup=False)
        self._text = ""
        self._dismissed = ""

    def dismiss(self) -> None:
        self._dismissed = self._text
        self.display = False

    def on_click(self) -> None:
        self.dismiss()

    def show(self, state: RunState) -> None:
        found = headline(state)
        text = str(found or "")
        if text == self._text:
            return
        self._text = text
        self.display = bool(text) and text != self._dismissed
        for severity in ("good", "info", "warning", "error"):
            self.set_class(found is not None and found.severity == severity, f"-{severity}")
        self.update(Content(text))
