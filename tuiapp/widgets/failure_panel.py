"""Why a run failed, the first cause on top with its traceback, or the ranks' stacks during a hang."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from tuiapp.trainers.config.files import user_data
from tuiapp.trainers.contract.events import RankFailed, Stacks
from tuiapp.trainers.state.messages import describe_failure
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.signs import SYMBOLS
from tuiapp.trainers.state.text import format_path, format_ranges, sanitize, sanitize_lines
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

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self._shown: object = None
        self.line_count = 1
        """How many lines there are before they are wrapped."""

    def compose(self) -> ComposeResult:
        yield Static("no rank has failed", markup=False)

    def show(self, state: RunState) -> None:
        first, hang = state.first_failure, state.hang
        key = len(state.failures), first, hang, [*state.stacks.values()]
        if (first is None and not state.stacks) or key == self._shown:
            return
        self._shown = key
        lines = [*(self._build(state, first) if first else []), *_describe_hang(state)]
        self.line_count = len(lines)
        self.query_one(Static).update(Content("\n").join(lines))
        self.scroll_home(animate=False)

    def _build(self, state: RunState, first: RankFailed) -> list[Content]:
        lines = [
            Content.styled(f"{SYMBOLS['error']} first cause: {describe_failure(first)}", "bold $text-error"),
            *(Content.styled(line, MUTED) for line in self._where(state, first)),
            Content(""),
        ]
        if first.traceback.strip():
            lines += [Content(line) for line in sanitize_lines(first.traceback)]
        elif first.last_lines:
            lines.append(Content.styled("the last lines of its stderr:", MUTED))
            lines += [Content(sanitize(line)) for line in first.last_lines[-100:]]
        else:
            lines.append(Content("its stderr is empty"))
        if later := [failure for failure in state.failures if failure is not first][:MAX_OTHERS]:
            lines += [Content(""), Content.styled("afterwards:", MUTED)]
            lines += [Content(f"  {describe_failure(failure)}") for failure in later]
        return lines

    def _where(self, state: RunState, failure: RankFailed) -> list[str]:
        """Returns where the rank's log is; another node has it in a directory of its own if this one is not shared."""
        log, node = f"ranks/{failure.rank}/stderr.log", state.node_of(failure.rank)
        path = sanitize(str(self._directory / log))
        if not node:
            return [f"full log: {path}"]
        local = format_path(user_data() / "nodes" / self._directory.name / log)
        return [f"full log, on {_node_name(state, node)}: {path}", f"or, if that is not shared: {local}"]


def _describe_hang(state: RunState) -> list[Content]:
    if not state.stacks:
        return []
    hang = state.hang
    text = f"{SYMBOLS['warning']} {sanitize(hang.text, 400)}" if hang else ""
    lines = [Content.styled(text, "bold $text-warning")]
    lines.append(Content.styled("Python stacks of the ranks, innermost call first:", MUTED))
    groups = group_stacks(state.stacks, hang.rank if hang else None)
    for group in groups:
        lines += [Content(""), Content.styled(_who(state, group.ranks), "bold"), *map(Content, group.main)]
    for group in groups:
        if group.others:
            title = Content.styled(f"other threads of rank {group.ranks[0]}:", MUTED)
            lines += [Content(""), title, *map(Content, group.others)]
    return lines


def _who(state: RunState, ranks: list[int]) -> str:
    numbers = sorted({state.node_of(rank) for rank in ranks}) if state.nodes else []
    where = f" (nodes {format_ranges(numbers)})" if numbers else ""
    if len(numbers) == 1:
        where = f" ({_node_name(state, numbers[0])})"
    if len(ranks) == 1:
        return f"rank {ranks[0]}{where}, pid {state.stacks[ranks[0]].pid}"
    return f"ranks {format_ranges(ranks)}{where}: {len(ranks)} at the same call"


def _node_name(state: RunState, number: int) -> str:
    return f"node {number}, {state.nodes[number].host}"


@dataclass(frozen=True, slots=True)
class StackGroup:
    """Ranks whose main threads are at the same call."""

    ranks: list[int]  # ascending
    main: list[str]  # lines of the main thread's frames, innermost first
    others: list[str]  # lines of the first rank's other threads


def group_stacks(stacks: Mapping[int, Stacks], first: int | None = None) -> list[StackGroup]:
    """Returns the group of rank `first`, then the others, the smallest first: the odd ones are on top."""
    groups: dict[tuple[str, ...], StackGroup] = {}
    for rank in sorted(stacks):
        main, others = _split(sanitize_lines(stacks[rank].text.rstrip()))
        groups.setdefault(tuple(main), StackGroup([], main, others)).ranks.append(rank)
    return sorted(groups.values(), key=lambda group: (first not in group.ranks, len(group.ranks)))


def _split(lines: list[str]) -> tuple[list[str], list[str]]:
    """Splits what `faulthandler` wrote: the main thread is the last."""
    starts = [number for number, line in enumerate(lines) if line.startswith(("Thread 0x", "Current thread 0x"))]
    last = starts[-1] if starts else -1
    return lines[last + 1 :], "\n".join(lines[: max(0, last)]).rstrip().splitlines()
