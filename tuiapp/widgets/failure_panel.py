"""Why a run failed, the first cause on top with its traceback, or the ranks' stacks during a hang."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from trainers.contract.events import RankFailed
from tuiapp.state.condition import describe_failure
from tuiapp.state.run_state import RunState
from tuiapp.state.text import sanitize, sanitize_lines
from tuiapp.widgets.colors import MUTED

MAX_OTHERS = 32


class FailurePanel(VerticalScroll):
    DEFAULT_CSS = """
    FailurePanel {
        padding: 0 1;
        background: $background;

        Static { width: 1fr; height: auto; }
    }
    """

    def __init__(self, *, directory: str, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._directory = sanitize(directory)
        self._shown: object = None

    def compose(self) -> ComposeResult:
        yield Static("no rank has failed", markup=False)

    def show(self, state: RunState) -> None:
        first, hang = state.first_failure, state.hang
        key = len(state.failures), first, hang, [*state.stacks.values()]
        if (first is None and not state.stacks) or key == self._shown:
            return
        self._shown = key
        lines = self._build(first, state.failures) if first else []
        self.query_one(Static).update(Content("\n").join([*lines, *_describe_hang(state)]))
        self.scroll_home(animate=False)

    def _build(self, first: RankFailed, failures: list[RankFailed]) -> list[Content]:
        lines = [
            Content.styled(f"✖ first cause: {describe_failure(first)}", "bold $text-error"),
            Content.styled(f"full log: {self._directory}/ranks/{first.rank}/stderr.log", MUTED),
            Content(""),
        ]
        if first.traceback.strip():
            lines += [Content(line) for line in sanitize_lines(first.traceback)]
        elif first.last_lines:
            lines.append(Content.styled("the last lines of its stderr:", MUTED))
            lines += [Content(sanitize(line)) for line in first.last_lines[-100:]]
        else:
            lines.append(Content("its stderr is empty"))
        others = [failure for failure in failures if failure is not first][:MAX_OTHERS]
        if others:
            lines += [Content(""), Content.styled("afterwards:", MUTED)]
            lines += [Content(f"  {describe_failure(failure)}") for failure in others]
        return lines


def _describe_hang(state: RunState) -> list[Content]:
    if not state.stacks:
        return []
    hang = state.hang
    lines = [Content.styled(f"▲ {sanitize(hang.text, 400)}", "bold $text-warning")] if hang else [Content("")]
    lines.append(Content.styled("Python stacks of each rank, innermost call first:", MUTED))
    named = hang.rank if hang else None
    for rank, stacks in sorted(state.stacks.items(), key=lambda item: (item[0] != named, item[0])):
        where = f" on node {stacks.node}" if stacks.node else ""
        lines += [Content(""), Content.styled(f"rank {rank}{where}, pid {stacks.pid}", "bold")]
        lines += [Content(line) for line in _main_thread_first(sanitize_lines(stacks.text.rstrip()))]
    return lines


def _main_thread_first(lines: list[str]) -> list[str]:
    """Moves the main thread, which faulthandler lists last, to the front."""
    starts = [number for number, line in enumerate(lines) if line.startswith(("Thread 0x", "Current thread 0x"))]
    if len(starts) < 2:
        return lines
    main = starts[-1]
    others = "\n".join(lines[:main]).rstrip().split("\n")
    return ["main thread:", *lines[main + 1 :], "", *others]
