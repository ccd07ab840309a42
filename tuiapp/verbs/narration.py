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
from tuiapp.trainers.config.learning_rate import started_rate_words
from tuiapp.trainers.contract.events import (
    Alert,
    AnyEvent,
    Checkpoint,
    CheckpointRequested,
    InitialWeights,
    LogLine,
    Metrics,
    Queued,
    RankFailed,
    RankStarted,
    RunEnded,
    RunStarted,
    StopRequested,
)
from tuiapp.trainers.contract.metrics import evaluation_of, mean
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.condition import run_words
from tuiapp.trainers.state.digest import is_logged
from tuiapp.trainers.state.known_metrics import format_accuracy, metric
from tuiapp.trainers.state.messages import (
    describe_average,
    describe_blemishes,
    describe_checkpoint,
    describe_initial,
    describe_queued,
    describe_rate,
    describe_result,
    failure_lines,
)
from tuiapp.trainers.state.rank_state import RankState
from tuiapp.trainers.state.run_state import RunClock, RunState, names
from tuiapp.trainers.state.text import (
    format_clock,
    format_duration,
    format_metric,
    format_percent,
    format_seconds,
    join_words,
    plural,
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
        self._epochs_told = 0

    def event(self, event: AnyEvent, state: RunState) -> None:
        """Called after an event was folded into the state."""
        texts = [_in_words(event, state)]
        if isinstance(event, RunStarted):
            # Earlier attempts have made them.
            whole = state.curves.epochs.last_whole
            self._epochs_told = whole.number if whole else 0
        elif isinstance(event, Metrics):
            texts += self._epochs(state)
        for text in filter(None, texts):
            self.say(f"{format_clock(event.time)}  {text}")

    def _epochs(self, state: RunState) -> list[str]:
        """Returns a line for each epoch that all ranks have ended meanwhile."""
        found = [row for row in state.curves.epochs.since(self._epochs_told) if row.is_whole]
        self._epochs_told = max([self._epochs_told, *(row.number for row in found)])
        return [epoch_words(row, state.epochs) for row in found]

    def tick(self, state: RunState) -> None:
        """Called once all available events are folded."""
        self._report_trouble(state)
        if state.step and state.status != "queued" and time.monotonic() - self._printed_at >= LINE_EVERY_S:
            self.say(f"{format_clock(time.time())}  {progress_words(state)}")

    def end(self, state: RunState) -> None:
        """Called when the run is over."""
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

    def event(self, event: AnyEvent, state: RunState) -> None:
        if isinstance(event, RankFailed) or (isinstance(event, Alert) and event.severity != "info"):
            super().event(event, state)

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

    def event(self, event: AnyEvent, state: RunState) -> None:
        # Above the view, automatic checkpoints are not worth a line.
        unasked = isinstance(event, Checkpoint) and not self._asked and state.stop_requested is None
        if isinstance(event, Checkpoint | CheckpointRequested):
            self._asked = isinstance(event, CheckpointRequested)
        if not unasked:
            super().event(event, state)

    def _print(self, text: str) -> None:
        self._live.print_above(text)


def describe_end(state: RunState, run: RunDir) -> str:
    """Describes in one line how a run ended."""
    if state.removed:
        return sanitize(f"LOST: the run's directory was removed: {run.path}")
    if state.ended is None:
        return sanitize(f"LOST: the run's supervisor died; see {run.supervisor_log}")
    summary = state.ended.summary
    parts = [f"{state.status.upper()}: {sanitize(state.ended.reason)}"]
    parts += filter(None, [describe_result(summary)])
    if summary.examples_per_second is not None:
        parts.append(describe_rate(summary.examples_per_second, state.config))
    parts += [format_duration(summary.seconds), sanitize(str(run.path)), describe_blemishes(state.blemishes)]
    return join_words(parts)


def _in_words(event: AnyEvent, state: RunState) -> str:
    match event:
        case Queued():
            return describe_queued(event)
        case RunStarted():
            config = event.config
            again = f"resumed from step {event.resumed_from:,}" if event.resumed_from else "started again"
            attempt = f"{again}, attempt {event.attempt}" if event.attempt > 1 else ""
            platform = config.get("platform")
            devices = f"{event.world_size} × {platform}" if platform else plural(event.world_size, "rank")
            run = join_words([state.name, event.run_id])
            rate = f"learning rate {scaled}" if (scaled := started_rate_words(config)) else ""
            mesh = f"mesh {config['mesh']}" if config.get("mesh") else ""
            words = [*names(config), devices, mesh, rate, describe_average(config), attempt]
            return sanitize(f"run {run}: {join_words(words)}")
        case RankStarted():
            return sanitize(f"rank {event.rank} runs on {event.device} {event.device_name}".rstrip())
        case Metrics() if is_logged(event):
            shown = [metric(name) for name in evaluation_of(event.values)[1:] if name]
            words = [f"{one.label} {one.format(event.values[one.name][-1])}" for one in shown if event.values[one.name]]
            epoch = f"epoch {state.epoch_of(event.last_step)}/{state.epochs}" if state.epochs else ""
            return join_words([epoch, f"step {event.last_step:,}", *words])
        case LogLine() if event.stream != "run":
            return sanitize(f"rank {event.rank} {event.stream}: {event.text}")
        case LogLine() | Alert():
            return sanitize(event.text)
        case InitialWeights():
            return describe_initial(event)
        case Checkpoint():
            return describe_checkpoint(event)
        case CheckpointRequested():
            return "saving a checkpoint after the current step"
        case StopRequested(now=True):
            return "stopping at once"
        case StopRequested(agreed=True) if state.is_script:
            return "the script stops after the step that its ranks agree on (Ctrl-C again: at once)"
        case StopRequested() if (grace := state.stop_grace_s) is not None:
            return f"SIGTERM sent; the script has {format_duration(grace)} to end (Ctrl-C again: at once)"
        case StopRequested(by="Slurm" | "Slurm's time limit"):
            return f"{event.by} stops the run: saving a checkpoint after the current step"
        case StopRequested(save=True):
            return "saving a checkpoint after the current step, then stopping (Ctrl-C again: at once, without it)"
        case StopRequested():
            return "stopping after the current step (Ctrl-C again: at once)"
        case RankFailed():
            return state.log[-1].text
        case RunEnded():
            return ""
    return ""


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
    told = [rank for rank in state.ranks.values() if rank.loss is not None]
    loss = mean([rank.loss for rank in told], [rank.examples for rank in told])
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
    words = f"rank {rank.rank} loss {format_metric(rank.loss)} {format_seconds(rank.pace.seconds_per_step)}"
    return f"{words} {behind:,} behind" if behind > 0 else words
