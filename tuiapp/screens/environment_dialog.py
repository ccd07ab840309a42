"""Makes the environment of a framework: says what and how much, then how far it is."""

from __future__ import annotations

import threading
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Button, Static

from tuiapp.library.environments import CancelledError, CreateError, create, describe
from tuiapp.screens.dialog import Dialog
from tuiapp.trainers.state.text import format_bytes, sanitize, sanitize_lines


class EnvironmentDialog(Dialog[bool]):
    """Returns whether the environment was made. Escape cancels at any time, and leaves nothing behind."""

    MANUAL = "backends"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "Cancel", id="dialog.cancel"),
        Binding("left,up", "app.focus_previous", "Previous", id="dialog.previous", show=False),
        Binding("right,down", "app.focus_next", "Next", id="dialog.next", show=False),
    ]

    def __init__(self, framework: str, why: str, *, gpus: bool, older: bool, again: bool) -> None:
        """`why` says what is missing now; with `gpus` it is made for CUDA; `again`: in place of the one there is.

        `older`: for CUDA 12.
        """
        super().__init__()
        self._framework, self._why, self._again = framework, why, again
        self._cuda, self._older = gpus, older
        self._cancelled = threading.Event()
        self._making = False
        self._bytes, self._line = 0, ""

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog") as dialog:
            dialog.border_title = Content(f"Environment {sanitize(self._framework)}")
            yield Static(id="text", markup=False)
            yield Static(id="progress", markup=False)
            with Horizontal(id="buttons"):
                yield Button("Create", variant="primary", id="create")
                yield Button("Cancel", id="cancel")

    def on_mount(self) -> None:
        try:
            made = describe(self._framework, cuda=self._cuda, older=self._older)
        except CreateError as error:
            self._fail(str(error))
            return
        self._explain(f"{self._why}\n\nCreate makes a virtual environment for its ranks,\n{made}")
        self.query_one("#create").focus()

    def on_unmount(self) -> None:
        self._cancelled.set()

    @on(Button.Pressed, "#create")
    def _begin(self) -> None:
        if not self._making:
            self._making = True
            self.query_one("#create").display = False
            self.query_one("#progress").display = True
            self._show("starting…")
            self._create()

    @on(Button.Pressed, "#cancel")
    def action_cancel(self) -> None:
        self._cancelled.set()
        if self._making:
            self._show("cancelling…")
        else:
            self.dismiss(False)

    @work(thread=True, group="create")
    def _create(self) -> None:
        try:
            create(
                self._framework, self._tell, cuda=self._cuda, older=self._older, again=self._again,
                cancelled=self._cancelled,
            )  # fmt: skip
        except CancelledError:
            self.call_later(self._close, False)
        except CreateError as error:
            self.call_later(self._fail, str(error))
        else:
            self.call_later(self._close, True)

    def _tell(self, line: str, size: int) -> None:
        """Called by the thread that makes it."""
        self._bytes = max(self._bytes, size)
        self.call_later(self._show, line)

    def _show(self, line: str) -> None:
        progress = self.query_one("#progress", Static)
        if line and not line.startswith("WARNING"):
            self._line = sanitize(line)
        progress.update(f"{format_bytes(self._bytes)} on the disk\n{self._line}")

    def _close(self, made: bool) -> None:
        # What `dismiss` returns is not for a handler of its own screen to wait for.
        self.dismiss(made)

    def _fail(self, why: str) -> None:
        self._making = False
        self._explain("✗ " + why)
        self.query_one("#create").display = self.query_one("#progress").display = False
        self.query_one("#cancel", Button).label = "Close"
        self.query_one("#cancel").focus()

    def _explain(self, text: str) -> None:
        self.query_one("#text", Static).update("\n".join(sanitize_lines(text)))
