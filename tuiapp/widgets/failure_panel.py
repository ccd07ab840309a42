"""Why a run failed: its first cause on top, with the traceback."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from trainers.contract.events import RankFailed
from tuiapp.state.condition import describe_failure
from tuiapp.state.run_facts import RunFacts
from tuiapp.state.text import sanitize, sanitize_lines
from tuiapp.widgets.palette import MUTED

MAX_OTHERS = 32


class FailurePanel(VerticalScroll):
    """The first failure's traceback, then the others in a line each."""

    DEFAULT_CSS = """
    FailurePanel {
        padding: 0 1;
        background: $surface;

        Static { width: 1fr; height: auto; }
    }
    """

    def __init__(self, *, directory: str, id: str | None = None, classes: str | None = None) -> None:
        """Prepare the panel.

        Args:
            directory: The run's, where the whole logs lie.
            id: The widget's id.
            classes: The widget's classes.
        """
        super().__init__(id=id, classes=classes)
        self._directory = sanitize(directory)
        self._shown: tuple[int, RankFailed | None] = (0, None)

    def compose(self) -> ComposeResult:  # noqa: D102
        yield Static("no rank has failed", markup=False)

    def show(self, state: RunFacts) -> None:
        """Show the failures, first cause on top."""
        first = state.first_failure
        key = (len(state.failures), first)
        if first is None or key == self._shown:
            return
        self._shown = key
        self.query_one(Static).update(self._build(first, state.failures))
        self.scroll_home(animate=False)

    def _build(self, first: RankFailed, failures: list[RankFailed]) -> Content:
        lines = [
            Content.styled(f"✖ first cause: {describe_failure(first)}", "bold $text-error"),
            Content.styled(f"whole log: {self._directory}/ranks/{first.rank}/stderr.log", MUTED),
            Content(""),
        ]
        if first.traceback.strip():
            lines += [Content(line) for line in sanitize_lines(first.traceback)]
        elif first.last_lines:
            lines.append(Content.styled("the last it wrote to stderr:", MUTED))
            lines += [Content(sanitize(line)) for line in first.last_lines[-100:]]
        else:
            lines.append(Content("it wrote nothing to stderr"))
        others = [failure for failure in failures if failure is not first][:MAX_OTHERS]
        if others:
            lines += [Content(""), Content.styled("after it:", MUTED)]
            lines += [Content(f"  {describe_failure(failure)}") for failure in others]
        return Content("\n").join(lines)
