"""What a headless run says on stderr: a bar that moves on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol, TextIO

from trainers.contract.events import (
    Alert,
    AnyEvent,
    Checkpoint,
    CheckpointRequested,
    Evaluation,
    LogLine,
    RankFailed,
    RankStarted,
    RunEnded,
    RunStarted,
    StopRequested,
)
from trainers.contract.rundir import RunDir
from tuiapp.state.condition import describe_checkpoint
from tuiapp.state.run_state import RunState
from tuiapp.state.text import (
    format_clock,
    format_duration,
    format_metric,
    format_percent,
    format_rate,
    join_words,
    sanitize,
    sanitize_lines,
)

if TYPE_CHECKING:
    from rich.progress import Progress

LINE_EVERY_S = 10.0
"""Without a terminal: how long there may be silence."""


class Narrator(Protocol):
    """Tells what happens in a run."""

    def event(self, event: AnyEvent, state: RunState) -> None:
        """An event has been folded into the state."""

    def tick(self, state: RunState) -> None:
        """All events that there are have been taken."""

    def end(self, state: RunState) -> None:
        """The run is over."""


@contextmanager
def narrator(stream: TextIO, run: RunDir) -> Iterator[Narrator]:
    """The narrator that suits a stream."""
    if not stream.isatty():
        yield PlainNarrator(stream, run)
        return
    # Rich costs 60 ms: only where there is a terminal.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[facts]}", markup=False))
    console = Console(file=stream, highlight=False, markup=False)
    with Progress(*columns, console=console, transient=True) as progress:
        yield BarNarrator(stream, run, progress)


class PlainNarrator:
    """Lines with the time in front.

    Args:
        stream: Where they go.
        run: Which run it is about.
    """

    def __init__(self, stream: TextIO, run: RunDir) -> None:
        self._stream, self._run = stream, run
        self._said_at = time.monotonic()

    def event(self, event: AnyEvent, state: RunState) -> None:
        """Say what is worth a line of its own."""
        if text := self._in_words(event, state):
            self._say(f"{format_clock(event.time)}  {text}")

    def tick(self, state: RunState) -> None:
        """Say where the run is when nothing was said for long."""
        if state.step and time.monotonic() - self._said_at >= LINE_EVERY_S:
            self._say(f"{format_clock(time.time())}  {_progress(state)}")

    def end(self, state: RunState) -> None:
        """Say what came of the run, with the traceback of its first failure."""
        failure = state.first_failure
        if state.status == "failed" and failure is not None:
            said = failure.traceback or "\n".join(failure.last_lines)
            for line in sanitize_lines(said) if said else []:
                self._say(f"  {line}")
        self._say(describe_end(state, self._run))

    def _in_words(self, event: AnyEvent, state: RunState) -> str:
        return _in_words(event, state)

    def _say(self, text: str) -> None:
        self._said_at = time.monotonic()
        # Nobody listens (`2>&1 | head`), or the disk is full: the run is followed all the same, to tell its end by
        # the exit code and on stdout.
        with suppress(OSError):
            self._print(text)

    def _print(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class BarNarrator(PlainNarrator):
    """The same lines, above a bar that shows where the run is."""

    def __init__(self, stream: TextIO, run: RunDir, progress: Progress) -> None:
        super().__init__(stream, run)
        self._progress = progress
        self._asked = False
        self._task = progress.add_task("starting", total=None, facts="")

    def tick(self, state: RunState) -> None:
        """Move the bar."""
        total = state.total_steps or None
        description = sanitize(state.phase or state.status)
        self._progress.update(
            self._task, completed=state.step, total=total, description=f"{description:>10}", facts=_progress(state)
        )

    def end(self, state: RunState) -> None:
        """Take the bar away and say what came of the run."""
        self._progress.stop()
        super().end(state)

    def _in_words(self, event: AnyEvent, state: RunState) -> str:
        # Above a bar the checkpoints that a run saves by itself are not worth a line.
        unasked = isinstance(event, Checkpoint) and not self._asked and state.stop_requested is None
        if isinstance(event, Checkpoint | CheckpointRequested):
            self._asked = isinstance(event, CheckpointRequested)
        return "" if unasked else super()._in_words(event, state)

    def _print(self, text: str) -> None:
        self._progress.console.print(text, soft_wrap=True)


def describe_end(state: RunState, run: RunDir) -> str:
    """One line about how a run ended."""
    if state.ended is None and not run.path.exists():
        return f"LOST: the run's directory was removed: {run.path}"
    if state.ended is None:
        return f"LOST: the run's supervisor died; see {run.supervisor_log}"
    summary = state.ended.summary
    parts = [f"{state.status.upper()}: {sanitize(state.ended.reason)}"]
    if summary.test_accuracy is not None:
        parts.append(f"test accuracy {format_percent(summary.test_accuracy, 1)}")
    if summary.examples_per_second is not None:
        parts.append(f"{format_rate(summary.examples_per_second)} examples/s")
    return " · ".join([*parts, format_duration(summary.seconds), str(run.path)])


def _progress(state: RunState) -> str:
    losses = [rank.loss for rank in state.ranks.values() if rank.loss is not None]
    parts = [f"epoch {state.epoch}/{state.epochs}", f"step {state.step:,}/{state.total_steps:,}"]
    if losses:
        parts.append(f"loss {format_metric(sum(losses) / len(losses))}")
    if state.evaluations:
        parts.append(f"accuracy {format_percent(state.evaluations[-1].accuracy, 1)}")
    if state.examples_per_second is not None:
        parts.append(f"{format_rate(state.examples_per_second)} examples/s")
    if (left := state.remaining()) is not None:
        parts.append(f"left {format_duration(left)}")
    return " · ".join(parts)


def _in_words(event: AnyEvent, state: RunState) -> str:
    match event:
        case RunStarted():
            config = event.config
            what = [str(config.get(key, "")) for key in ("backend", "model", "dataset")]
            again = f"resumed from step {event.resumed_from:,}, attempt {event.attempt}" if event.attempt > 1 else ""
            devices = f"{config.get('devices')} × {config.get('platform')}"
            return sanitize(f"run {event.run_id}: {join_words([*what, devices, again])}")
        case RankStarted():
            return sanitize(f"rank {event.rank} runs on {event.device} {event.device_name}".rstrip())
        case Evaluation():
            return (
                f"epoch {event.epoch}/{state.epochs} · step {event.step:,} · test loss {format_metric(event.loss)} · "
                f"accuracy {format_percent(event.accuracy, 1)}"
            )
        case LogLine() if event.stream != "run":
            return sanitize(f"rank {event.rank} {event.stream}: {event.text}")
        case LogLine() | Alert():
            return sanitize(event.text)
        case Checkpoint():
            return describe_checkpoint(event)
        case CheckpointRequested():
            return "saving a checkpoint after the step under way"
        case StopRequested(now=True):
            return "stopping at once"
        case StopRequested(save=True):
            return "saving a checkpoint after the step under way, then stopping (Ctrl-C again: at once, without it)"
        case StopRequested():
            return "stopping after the step under way (Ctrl-C again: at once)"
        case RankFailed():
            return state.log[-1].text
        case RunEnded():
            return ""
    return ""
