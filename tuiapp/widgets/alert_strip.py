"""One line in plain words: what a person should know first; a key or a click takes it away until there is more."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from tuiapp.state.condition import headline
from tuiapp.state.run_facts import RunFacts


class AlertStrip(Static):
    """The most severe alert, the failure, or the end's summary; hidden while there is nothing to say."""

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
        """The text that was taken away."""

    def dismiss(self) -> None:
        """Take away what is shown; what differs from it comes up again."""
        self._dismissed = self._text
        self.display = False

    def on_click(self) -> None:
        """The same by mouse."""
        self.dismiss()

    def show(self, state: RunFacts) -> None:
        """Show what matters most now."""
        found = headline(state)
        text = ""
        if found:
            text = f"{found.symbol} {found.text}"
        if text == self._text:
            return
        self._text = text
        self.display = bool(text) and text != self._dismissed
        for severity in ("good", "info", "warning", "error"):
            self.set_class(found is not None and found.severity == severity, f"-{severity}")
        self.update(Content(text))
