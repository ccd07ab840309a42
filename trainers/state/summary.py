"""What is known of a run from the ends of its files: its status, configuration, results, and who can read it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, TypeAlias

import msgspec

from tuiapp.trainers.config.catalog import takes
from tuiapp.trainers.config.files import read_limited
from tuiapp.trainers.config.options import ConfigError, Problem
from tuiapp.trainers.config.run_config import MAX_FILE_BYTES, SCHEMA, RunConfig, best_by, parse_toml
from tuiapp.trainers.contract.about import About, read_about
from tuiapp.trainers.contract.evaluations import NEVER, Evaluated, Evaluations
from tuiapp.trainers.contract.events import (
    PRUNED,
    AnyEvent,
    Blemish,
    Facts,
    Metrics,
    Queued,
    RunEnded,
    RunStarted,
    SoFar,
    StopRequested,
    Summary,
    decode,
    encode,
    stalled_by,
)
from tuiapp.trainers.contract.journal import last_line_with
from tuiapp.trainers.contract.journal_ends import TAIL_BYTES, JournalPeek, peek_journal
from tuiapp.trainers.contract.lock import Liveness
from tuiapp.trainers.contract.manifest import best_saved
from tuiapp.trainers.contract.metrics import EXAMPLES, STEP_TIME, last_examples, loss_of, mean, total
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.waiting import Waiting, read_waiting
from tuiapp.trainers.state.blemishes import unaccepted
from tuiapp.trainers.state.messages import describe_place, describe_queued
from tuiapp.trainers.state.summary_meter import add_figures

STARTING_S = 30.0
"""Time for a launch: a directory without a journal that is no older is starting."""

RANK_BYTES, MOST_TAIL_BYTES = 3 << 10, 4 << 20
"""Of a journal's end per rank, which has a batch of each, and of all of them."""

ListedStatus: TypeAlias = Literal["queued", "running", "completed", "failed", "stopped", "lost", "newer", "unreadable"]
""""newer": its journal or its run.toml has another schema; "unreadable": its files cannot be read."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    directory: RunDir
    status: ListedStatus
    config: RunConfig | None
    """None if run.toml cannot be read."""
    problem: str
    """Why it cannot, or what is wrong with the journal; "" for nothing."""
    summary: Summary
    """Of a live or lost run: as of the steps reported last."""
    reason: str
    """Why it ended or waits; of a running one why no rank makes progress, "" if they do."""
    started: float | None
    facts: Facts = field(default_factory=lambda: Facts(time=0.0, mono=0.0))
    """What a script says of its run, as far as the ends of its journal have it."""
    about: About = field(default_factory=About)
    """What the user says of it."""
    waiting: Waiting | None = None
    """Its place in the queue of its directory, if it waits there."""
    place: int | None = None
    """Which one of those that wait it is, from 1, as far as whoever lists them knows."""
    begun: RunStarted | None = None
    """The last attempt's first event, if it is among the journal's last lines, or else that of the first."""

    @property
    def name(self) -> str:
        """As the user named it, or else its script; "" if neither did."""
        return self.about.name or self.facts.name

    @property
    def blemishes(self) -> list[Blemish]:
        """What mars it and the user has not accepted."""
        return unaccepted(self.summary, self.about)

    @property
    def epoch_seconds(self) -> float | None:
        """What the steps of an epoch take at its speed, so without what an attempt's first epoch takes to compile."""
        rate, steps = self.summary.examples_per_second, self.begun.steps_per_epoch if self.begun else 0
        return steps * self.config.global_batch_size / rate if rate and steps and self.config else None

    @property
    def host(self) -> str:
        return self.begun.host if self.begun else ""

    @property
    def where(self) -> str:
        """Its Slurm job, and which node of several it is, in words; "" for neither."""
        return describe_place(self.begun) if self.begun else ""

    @property
    def is_live(self) -> bool:
        return self.status in ("queued", "running")

    @property
    def is_readable(self) -> bool:
        return self.status not in ("newer", "unreadable")

    @property
    def best_by(self) -> str:
        """What its best checkpoint is best by."""
        return best_by(self.config or RunConfig())

    @property
    def best_accuracy(self) -> float | None:
        """The greatest of its evaluations; a journal without it has one evaluation at most that is known."""
        return self.summary.test_accuracy if self.summary.best_accuracy is None else self.summary.best_accuracy


def last_attempt(run: RunDir) -> int:
    """How often a run was started or resumed; 0 if never."""
    if noted := run.lock_note().attempt:
        return noted
    began = encode(RunStarted(run_id="", host="", pid=0, config={}, world_size=0))
    # The type comes first on every line: no other line is decoded.
    event = decode(last_line_with(run.journal, began[: began.index(b",") + 1]))
    return event.attempt if isinstance(event, RunStarted) else 0


def since_start(events: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
    """Returns those of the last attempt; all if its start is not among them."""
    return events[max((n for n, event in enumerate(events) if isinstance(event, RunStarted)), default=0) :]


def is_final(run: RunDir) -> bool:
    """Whether a run has ended for good: Slurm will not start it again, even if it starts its job again."""
    events = peek_journal(run.journal).tail()
    if not events or not isinstance(end := events[-1], RunEnded):
        return False
    requeues = False
    with contextlib.suppress(ConfigError, OSError):
        requeues = read_config(run).requeue
    asked = any(isinstance(event, StopRequested) and event.by in ("command", PRUNED) for event in since_start(events))
    return asked or not requeues or end.status == "completed"


def read_config(run: RunDir) -> RunConfig:
    """Reads a run's configuration; raises ConfigError if it is damaged or of another version, OSError."""
    try:
        return parse_toml(read_limited(run.config, MAX_FILE_BYTES), str(run.config))[0]
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError([Problem("", str(error))], str(run.config)) from None


def summarise(run: RunDir) -> RunInfo:
    """Reads what a list shows of a run, from the ends of its files. Never raises for their content."""
    about, damaged = read_about(run)
    info = _summarise(run)
    return replace(info, about=about, problem=info.problem or damaged)


def run_name(run: RunDir) -> str:
    """As `RunInfo.name`, without reading the rest."""
    return read_about(run)[0].name or peek_journal(run.journal).facts().name


def _summarise(run: RunDir) -> RunInfo:
    # Liveness first: a run that ends between the two looks has its end in the journal by then.
    liveness = run.liveness()
    live = liveness.is_live
    config, problem, newer = None, "", False
    try:
        config = read_config(run)
    except ConfigError as error:
        problem = str(error)
        newer = any(one.key == "schema" for one in error.problems)
    except OSError as error:
        problem = f"cannot read {run.config}: {error.strerror or error}"
    started: float | None = None
    with contextlib.suppress(OSError):
        started = run.config.stat().st_mtime
    seen = peek_journal(run.journal)
    found = partial(RunInfo, begun=seen.begun())
    if seen.newer:
        return found(run, "newer", config, seen.newer, Summary(), "", started)
    if seen.error:
        why = f"cannot read {run.journal}: {seen.error.strerror or seen.error}"
        return found(run, "unreadable", config, why, Summary(), "", started)
    if isinstance(seen.first, RunStarted):
        # A copy of the directory has files of another age.
        started = seen.first.time
    status: ListedStatus
    if isinstance(end := seen.last, RunEnded) and not live:
        status = "newer" if newer else end.status
        return found(run, status, config, problem, end.summary, end.reason, started, facts=seen.facts())
    tail = _tail(run, seen)
    so_far, stalled = _so_far(run, tail, seen.first, started, live=live)
    if newer:
        return found(run, "newer", config, problem, so_far, "", started, facts=seen.facts())
    if live or (not seen.exists and _is_starting(started)):
        waits = _last_mark(tail)
        if isinstance(waits, RunEnded) and (job := run.queued_job()):
            # Its job has put itself back into the queue; why it waits there is known a moment later.
            waits = Queued(job=job)
        if isinstance(waits, Queued):
            reason = describe_queued(waits)
            waiting = read_waiting(run.waits) if liveness is Liveness.WAITING else None
            if config is not None and waiting is not None:
                # GPUs are chosen anew at its start: those that were idle when it was queued say nothing.
                config = msgspec.structs.replace(config, device_ids=waiting.device_ids)
            more = partial(found, facts=seen.facts(), waiting=waiting)
            return more(run, "queued", config, problem, so_far, reason, started)
        return found(run, "running", config, problem, so_far, stalled, started, facts=seen.facts())
    reason = "its supervisor died without saying why; see supervisor.log"
    return found(run, "lost", config, problem, so_far, reason, started, facts=seen.facts())


def _tail(run: RunDir, seen: JournalPeek) -> list[AnyEvent]:
    """Returns the last events, with a report of each rank."""
    ranks = seen.first.world_size if isinstance(seen.first, RunStarted) else 1
    needed = min(RANK_BYTES * ranks, MOST_TAIL_BYTES)
    return (peek_journal(run.journal, needed) if needed > TAIL_BYTES else seen).tail()


def _last_mark(tail: Sequence[AnyEvent]) -> AnyEvent | None:
    """Returns the last event that says whether a run waits: after it come alerts at most, as of a silent Slurm."""
    marks = (event for event in reversed(tail) if isinstance(event, Queued | RunStarted | RunEnded | Metrics))
    return next(marks, None)


def _so_far(
    run: RunDir, tail: list[AnyEvent], first: AnyEvent | None, started: float | None, *, live: bool
) -> tuple[Summary, str]:
    """Returns what a run without an end has come to, and why no rank makes progress; "" if they do."""
    # The journal knows an epoch's length: the data file may be gone.
    steps_per_epoch = first.steps_per_epoch if isinstance(first, RunStarted) else 0
    unknown = None if isinstance(first, RunStarted) else 0.0
    tail = list(since_start(tail))
    place = max((n for n, event in enumerate(tail) if isinstance(event, SoFar | RunEnded)), default=0)
    told = tail[place] if tail else None
    if isinstance(told, RunEnded):
        # Its job waits to be started again.
        return told.summary, ""
    # Of a run that nobody has summed up, earlier evaluations are known by their checkpoints, if at all.
    known = told.summary if isinstance(told, SoFar) else Summary()
    evaluations = Evaluations(
        Evaluated(known.best_loss, known.best_accuracy) if isinstance(told, SoFar) else best_saved(run.checkpoints)
    )
    stalled = ""
    reports = [event for event in tail[place:] if isinstance(event, Metrics)]
    for event in tail[place:]:
        stalled = stalled_by(event, stalled) if live else ""
    for report in reports:
        evaluations.add(report)
    figures, rank_of = dict(known.metrics), dict[str, int]()
    if isinstance(first, RunStarted):
        for report in reports:
            add_figures(figures, report, rank_of, of_script=not first.steps_per_epoch)
    begun = (tail[0].resumed_from or 0) if tail and isinstance(tail[0], RunStarted) else 0
    step = max([known.steps, begun, *(report.last_step for report in reports if report.is_training)])
    since = told.time if isinstance(told, SoFar | RunStarted) else started
    # The time in a queue is none of the run's.
    newest = since if isinstance(_last_mark(tail), Queued) else tail[-1].time if tail else started
    loss = loss_of({name: None for report in reports for name in report.values})
    losses = {report.rank: report.values[loss][-1] for report in reports if loss in report.values}
    sizes = {report.rank: last_examples(report.values, report.counts) for report in reports if loss in report.values}
    rate = _rate([event for event in tail if isinstance(event, Metrics)])
    last, best = evaluations.last, evaluations.best
    return Summary(
        steps=step,
        epochs=step / steps_per_epoch if steps_per_epoch > 0 else known.epochs if isinstance(told, SoFar) else unknown,
        # Of a live run the recent one, as on its screen.
        examples_per_second=(None if stalled else rate) if live else known.examples_per_second or rate,
        loss=mean(losses.values(), sizes.values()) if losses else known.loss,
        test_loss=known.test_loss if last == NEVER else last.loss,
        test_accuracy=known.test_accuracy if last == NEVER else last.accuracy,
        evaluated_on=evaluations.group or known.evaluated_on,
        best_loss=best.loss,
        best_accuracy=best.accuracy,
        seconds=known.seconds + (max(0.0, newest - since) if newest and since else 0.0),
        metrics=figures,
    ), stalled


def _rate(reports: list[Metrics]) -> float | None:
    rates = {}
    for event in reports:
        if (seconds := total(event.values.get(STEP_TIME, ()), event.counts)) > 0 and EXAMPLES in event.values:
            rates[event.rank] = total(event.values[EXAMPLES]) / seconds
    return sum(rates.values()) if rates else None


def _is_starting(started: float | None) -> bool:
    return started is not None and time.time() - started < STARTING_S


def run_facts(run: RunDir, status: str, summary: Summary) -> dict[str, object]:
    """A run and its results; null for what it did not reach."""
    return {
        "run": run.run_id,
        "directory": str(run.path),
        "status": status,
        "steps": summary.steps,
        "epochs": summary.epochs,
        "examples_per_second": summary.examples_per_second,
        "loss": summary.loss,
        "test_loss": summary.test_loss,
        "test_accuracy": summary.test_accuracy,
        "seconds": summary.seconds,
        "blemishes": msgspec.to_builtins(summary.blemishes),
    }


def config_facts(config: RunConfig | None) -> dict[str, object]:
    """What identifies a run in its configuration; null for what that does not have, or if it cannot be read."""
    names = ("backend", "model", "dataset", "script", "devices")
    return {name: getattr(config, name) if config and takes(config.backend, name) else None for name in names}


def read_only_reason(run: RunDir) -> str:
    """Says that a run has another schema than this version's, in words; "" if it has not."""
    if peek_journal(run.journal).newer:
        return "a newer version of tuiapp wrote its journal: update tuiapp to resume or change it"
    try:
        read_config(run)
    except ConfigError as error:
        if any(problem.key == "schema" for problem in error.problems):
            return f"a newer version of tuiapp wrote its run.toml, this one knows schema {SCHEMA}: update tuiapp"
    except OSError:
        return ""
    return ""
