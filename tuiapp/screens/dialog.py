"""What all dialogs have in common: a framed box in front of a screen."""

from __future__ import annotations

from typing import TypeVar

from textual.screen import ModalScreen

from tuiapp.terminal.resize import ResizeLoopFix

T = TypeVar("T")


class Dialog(ModalScreen[T], ResizeLoopFix[T]):
    """Subclasses compose a container `#dialog`, with buttons in `#buttons`."""

    DEFAULT_CSS = """
    Dialog {
        align: center middle;

        #dialog {
            width: 74;
            max-width: 95%;
            height: auto;
            max-height: 95%;
            padding: 1 2;
            border: round $primary;
            border-title-style: bold;
            background: $surface;
        }

        #buttons {
            height: auto;

            Button { margin-right: 1; }
        }
    }
    """
