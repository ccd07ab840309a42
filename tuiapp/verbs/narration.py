"""A headless run's output on stderr: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Callable
from typing import TextIO

from rich.text import Text

from tuiapp.terminal.ascii_filter import to_ascii
from tuiapp.terminal.live_lines import LiveLines
from tuiapp.trainers.contract.events import (
    Alert,
    AnyEvent,
    Checkpoint,
    CheckpointRequested,
    Metrics,
    RankFailed,
    RunEnded,
    RunStarted,
    StopRequested,
)
from tuiapp.trainers.contract.metrics import mean
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.condition import run_words
from tuiapp.trainers.state.known_metrics import format_accuracy
from tuiapp.trainers.state.messages import (
    describe_blemishes,
    describe_queued,
    describe_rate,
    describe_result,
    failure_lines,
)
from tuiapp.trainers.state.rank_state import RankState
from tuiapp.trainers.state.run_state import LogEntry, RunClock, RunState, names
from tuiapp.trainers.state.text import (
    format_clock,
    format_duration,
    format_metric,
    format_percent,
    format_seconds,
    join_words,
    progress_bar,
    sanitize,
)
from tuiapp.verbs.output import redirect_to_devnull
from tuiapp.view.epochs import epoch_words

FRAME_S = 0.2  # between two drawings of the view
LINE_EVERY_S = 10.0  # longest silence without a terminal
WIDE_CELLS = 100  # from this width on, each rank is shown
BAR_CELLS = 30
PHASE_CELLS = 13
MAX_RANKS = 4  # shown by name


def narrator(
    stream: TextIO, run: RunDir, *, plain: bool = False, quiet: bool = False, ascii_only: bool = False
) -> PlainNarrator:
    """Returns the narrator for a stream; `plain` prints lines on a terminal too, `quiet` few ones."""
    if quiet:
        return QuietNarrator(stream, run)
    if plain or not stream.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return PlainNarrator(stream, run)
    return LiveNarrator(stream, run, ascii_only=ascii_only)


class PlainNarrator:
    def __init__(self, stream: TextIO, run: RunDir) -> None:
        self._stream, self._run = stream, run
        self._printed_at = time.monotonic()
        self._in_trouble = False
        self._printed = 0
        """Entries of the state's log that were printed, or not wanted."""
        self._last_epoch = 0

    def event(self, event: AnyEvent, state: RunState) -> None:
        """Prints what the log says of an event that was just folded into the state."""
        entries, self._printed = state.log_since(self._printed), state.log_count
        if not self.wants(event, state):
            return
        texts = [*map(_in_words, entries)]
        if isinstance(event, RunStarted):
            what = sanitize(join_words(names(event.config)))
            texts.insert(0, f"run {join_words([state.name, state.run_id])}{f': {what}' if what else ''}")
            # Earlier attempts have made them.
            epoch = state.curves.epochs.last_whole
            self._last_epoch = epoch.number if epoch else 0
        elif isinstance(event, Metrics):
            epochs = [row for row in state.curves.epochs.since(self._last_epoch) if row.is_whole]
            self._last_epoch = max([self._last_epoch, *(row.number for row in epochs)])
            texts += [epoch_words(row, state.epochs) for row in epochs]
        elif isinstance(event, StopRequested) and not event.now:
            texts = [f"{text} (Ctrl-C again: at once{', without it' * ('checkpoint' in text)})" for text in texts]
        for text in texts:
            self.say(f"{format_clock(event.time)}  {text}")

    def wants(self, event: AnyEvent, state: RunState) -> bool:
        """Returns whether what the log says of an event is printed; `describe_end` says more of the run's end."""
        return not isinstance(event, RunEnded)

    def tick(self, state: RunState) -> None:
        """Prints, now and then, how far a run is whose available events are all folded."""
        self._report_trouble(state)
        if state.step and state.status != "queued" and time.monotonic() - self._printed_at >= LINE_EVERY_S:
            self.say(f"{format_clock(time.time())}  {progress_words(state)}")

    def end(self, state: RunState) -> None:
        """Prints how the run ended, and what failed first."""
        failure = state.first_failure
        if state.status == "failed" and failure is not None:
            for line in failure_lines(failure):
                self.say(f"  {line}")
        self.say(describe_end(state, self._run))

    def _report_trouble(self, state: RunState) -> None:
        # Its text contains a running count of seconds; an alert reports when it is over.
        if state.trouble and not self._in_trouble:
            self.say(f"{format_clock(time.time())}  {state.trouble}")
        self._in_trouble = bool(state.trouble)

    def say(self, text: str) -> None:
        """Prints a line."""
        self._printed_at = time.monotonic()
        self._try(lambda: self._print(text))

    def _try(self, write: Callable[[], None]) -> None:
        """Ignores errors: if the output cannot be written, the run is still followed for its exit code."""
        try:
            write()
        except OSError as error:
            # The reader (`2>&1 | head`) or the terminal is gone; a full disk may have room again.
            if error.errno in (errno.EPIPE, errno.EIO):
                redirect_to_devnull(self._stream)

    def _print(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class QuietNarrator(PlainNarrator):
    """Prints what goes wrong, and how the run ends."""

    def wants(self, event: AnyEvent, state: RunState) -> bool:
        return isinstance(event, RankFailed) or (isinstance(event, Alert) and event.severity != "info")

    def tick(self, state: RunState) -> None:
        self._report_trouble(state)


class LiveNarrator(PlainNarrator):
    """Prints the same lines above a live view, whose last state remains."""

    def __init__(self, stream: TextIO, run: RunDir, *, ascii_only: bool = False) -> None:
        super().__init__(stream, run)
        self._live = LiveLines(stream)
        self._ascii = ascii_only
        self._asked = False
        self._drawn_at = -math.inf
        self._clock = RunClock(time.time)

    def tick(self, state: RunState) -> None:
        self._report_trouble(state)
        self._clock.sync(state.last_time, more=False)
        if time.monotonic() - self._drawn_at >= FRAME_S:
            self._draw(state)

    def end(self, state: RunState) -> None:
        self._draw(state)
        self._try(self._live.close)
        super().end(state)

    def _draw(self, state: RunState) -> None:
        self._drawn_at = time.monotonic()
        lines = live_view(state, self._clock.now(), self._live.console.width)
        self._try(lambda: self._live.draw([Text(to_ascii(line) if self._ascii else line) for line in lines]))

    def wants(self, event: AnyEvent, state: RunState) -> bool:
        # Above the view, automatic checkpoints are not worth a line.
        unasked = isinstance(event, Checkpoint) and not self._asked and state.stop_requested is None
        if isinstance(event, Checkpoint | CheckpointRequested):
            self._asked = isinstance(event, CheckpointRequested)
        return not unasked and super().wants(event, state)

    def _print(self, text: str) -> None:
        self._live.print_above(text)


def describe_end(state: RunState, run: RunDir) -> str:
    """Describes in one line how a run ended."""
    if state.removed:
        return sanitize(f"LOST: the run's directory was removed: {run.path}")
    if state.ended is None:
        return sanitize(f"LOST: the run's supervisor died; see {run.supervisor_log}")
    summary = state.ended.summary
    rate = summary.examples_per_second
    return join_words(
        [
            f"{state.status.upper()}: {sanitize(state.ended.reason)}",
            describe_result(summary),
            "" if rate is None else describe_rate(rate, state.config),
            format_duration(summary.seconds),
            sanitize(str(run.path)),
            describe_blemishes(state.blemishes),
        ]
    )


def _in_words(entry: LogEntry) -> str:
    """Returns an entry of the log with the rank that it is of, unless it says so itself."""
    if entry.rank is None or entry.stream == "run" or f"rank {entry.rank}" in entry.text:
        return entry.text
    stream = f" {entry.stream}" if entry.stream in ("stdout", "stderr") else ""
    return f"rank {entry.rank}{stream}: {entry.text}"


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
    ranks = [rank for rank in state.ranks.values() if rank.loss is not None]
    loss = mean([rank.loss for rank in ranks], [rank.examples for rank in ranks])
    return [
        "" if loss is None else f"loss {format_metric(loss)}",
        f"accuracy {format_accuracy(accuracy)}" if (accuracy := state.test_accuracy) is not None else "",
        describe_rate(rate, state.config) if (rate := state.examples_per_second) is not None else "",
    ]


def _times(state: RunState, now: float) -> list[str]:
    left = state.remaining()
    return [
        f"elapsed {format_duration(state.elapsed(now) or 0.0)}",
        f"left {format_duration(left)}" if left is not None and state.is_live else "",
    ]


def _rank_words(rank: RankState, leader: RankState, now: float) -> str:
    behind = rank.behind(leader, now)
    text = f"rank {rank.rank} loss {format_metric(rank.loss)} {format_seconds(rank.pace.seconds_per_step)}"
    return f"{text} {behind:,} behind" if behind > 0 else text
