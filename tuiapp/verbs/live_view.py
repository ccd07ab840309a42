"""A run's progress in three or four lines of a terminal, redrawn in place, with a log that grows above them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.text import Text

from trainers.state.condition import run_words
from trainers.state.known_metrics import format_accuracy
from trainers.state.messages import describe_queued
from trainers.state.rank_state import RankState
from trainers.state.run_state import RunState
from trainers.state.text import (
    format_duration,
    format_metric,
    format_percent,
    format_rate,
    format_seconds,
    join_words,
    sanitize,
)

_ERASE_ROW_ABOVE = ((ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2))


class LiveLines:
    def __init__(self, stream: TextIO) -> None:
        self.console = _Console(file=stream, force_terminal=True, highlight=False)
        self._live = Live(
            console=self.console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        self._shown: Sequence[Text] = ()
        self._width = 0

    def draw(self, lines: Sequence[Text]) -> None:
        width = self.console.width
        if (lines, width) == (self._shown, self._width):
            return
        if not self._live.is_started:
            self._live.start()
        if width < self._width:
            # After a resize, lines may be broken into several rows: Rich counts one row a line.
            shown = (min(cell_len(line.plain), self._width) for line in self._shown)
            more = sum(max(0, (cells - 1) // width) for cells in shown)
            self.console.control(Control((ControlType.ERASE_IN_LINE, 2), *_ERASE_ROW_ABOVE * more))
        self._shown, self._width = lines, width
        self._live.update(Text("\n", no_wrap=True, overflow="ellipsis").join(lines), refresh=True)

    def print_above(self, text: str) -> None:
        self.console.print(Text(text), soft_wrap=True)

    def close(self) -> None:
        self._live.stop()


class _Console(Console):
    def show_cursor(self, show: bool = True) -> bool:
        """Does nothing: a hidden cursor would remain hidden after Ctrl-Z or a kill."""
        return False


WIDE_CELLS = 100  # from this width on, each rank is shown
BAR_CELLS = 30
PHASE_CELLS = 13
MAX_RANKS = 4  # shown by name


def live_view(state: RunState, now: float, cells: int) -> list[str]:
    """Returns the lines; `now` in seconds since the epoch, `cells` the terminal's width."""
    name, stands = run_words(state, now)
    phase = stands.lower() if name == "stalled" else sanitize(state.phase or state.status)
    done = state.progress
    words = [*_learning(state), *_times(state, now)] if state.queued is None else [describe_queued(state.queued)]
    where, width = join_words(_where(state)), min(BAR_CELLS, max(8, cells - 50))
    if done is not None:
        where = f"{progress_bar(done, width)} {format_percent(done):>5}  {where}"
    lines = [
        f"{phase:{PHASE_CELLS}} {where}",
        " " * (PHASE_CELLS + 1) + (state.trouble or join_words(words)),
    ]
    ranks = [rank for rank in state.ranks.values() if rank.step and rank.last_time]
    if cells >= WIDE_CELLS and len(ranks) > 1:
        leader = max(ranks, key=lambda rank: rank.step)
        words = [_rank_words(rank, leader, now) for rank in ranks[:MAX_RANKS]]
        if len(ranks) > MAX_RANKS:
            slowest = min(ranks, key=lambda rank: rank.step)
            last = f"… {len(ranks)} ranks, last: {_rank_words(slowest, leader, now)}"
            words = [*words[: MAX_RANKS - 1], last]
        lines.append(" " * (PHASE_CELLS + 1) + " | ".join(words))
    return lines


def progress_bar(fraction: float, cells: int) -> str:
    """Returns a bar of `cells` cells."""
    full = int(fraction * cells)
    tip = "╸" if full < cells and fraction * cells - full >= 0.5 else ""
    return "━" * full + tip + "─" * (cells - full - len(tip))


def progress_words(state: RunState) -> str:
    """Formats a run's progress on one line."""
    where = _where(state)
    if state.trouble:
        # The other figures do not change meanwhile.
        return join_words([*where, state.trouble])
    left = state.remaining()
    return join_words([*where, *_learning(state), "" if left is None else f"left {format_duration(left)}"])


def _where(state: RunState) -> list[str]:
    total = f"/{state.total_steps:,}" if state.total_steps else ""
    step = f"step {state.step:,}{total}" if state.step or total else ""
    return [f"epoch {state.epoch}/{state.epochs}" if state.epochs else "", step]


def _learning(state: RunState) -> list[str]:
    losses = [rank.loss for rank in state.ranks.values() if rank.loss is not None]
    return [
        f"loss {format_metric(sum(losses) / len(losses))}" if losses else "",
        f"accuracy {format_accuracy(accuracy)}" if (accuracy := state.test_accuracy) is not None else "",
        f"{format_rate(state.examples_per_second)} examples/s" if state.examples_per_second is not None else "",
    ]


def _times(state: RunState, now: float) -> list[str]:
    left = state.remaining()
    return [
        f"elapsed {format_duration(state.elapsed(now) or 0.0)}",
        f"left {format_duration(left)}" if left is not None and state.is_live else "",
    ]


def _rank_words(rank: RankState, leader: RankState, now: float) -> str:
    behind = rank.behind(leader, now)
    words = f"rank {rank.rank} loss {format_metric(rank.loss)} {format_seconds(rank.pace.seconds_per_step)}"
    return f"{words} {behind:,} behind" if behind > 0 else words
