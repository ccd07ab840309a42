"""What lists show of a run: its status, configuration, results, and who can read it."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeAlias

import msgspec

from tuiapp.trainers.config.catalog import BACKENDS, takes
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.run_config import SCHEMA, RunConfig, best_by
from tuiapp.trainers.config.settings import current_settings
from tuiapp.trainers.contract.events import Blemish, Facts, Queued, RunStarted, Summary
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import About, Waiting, read_about, read_waiting
from tuiapp.trainers.contract.status import Status
from tuiapp.trainers.state.blemishes import unaccepted
from tuiapp.trainers.state.messages import describe_place, describe_queued
from tuiapp.trainers.state.status import config_of, describe_schema, journal_schema, known, read_config

LEAST_DONE = 0.05
"""Share of a script's steps from which its mean pace is told."""
STARTING_S = 30.0
"""Time for a launch: a directory without a journal that is no older is starting."""

ListedStatus: TypeAlias = Literal["queued", "running", "completed", "failed", "stopped", "lost", "newer", "unreadable"]
""""newer": its journal or its run.toml has another schema; "unreadable": its files cannot be read."""


NO_FACTS, NOTHING_SAID = Facts(time=0.0, mono=0.0), About()


@dataclass(frozen=True, slots=True)
class RunInfo:
    directory: RunDir
    status: ListedStatus
    config: RunConfig | None
    """None if run.toml cannot be read."""
    problem: str
    """Why it cannot, or what is wrong with the journal; "" for nothing."""
    summary: Summary
    """The summary; of a live or lost run as of the steps reported last."""
    reason: str
    """Why it ended or waits; of a running one why no rank makes progress, "" if they do."""
    started: float | None
    facts: Facts = NO_FACTS
    """What a script says of its run."""
    about: About = NOTHING_SAID
    """What the user says of it."""
    waiting: Waiting | None = None
    """The run's place in the queue of its directory, if it waits there."""
    place: int | None = None
    """Which one of those that wait it is, from 1, as far as whoever lists them knows."""
    begun: RunStarted | None = None
    """The last attempt's first event; of its `config` backend and global batch."""
    journal_bytes: int = 0
    has_large_journal: bool = False
    """Whether the journal is large, by the user's settings."""
    disk_bytes: int | None = None
    """What its directory takes on the disk, as far as whoever lists it has measured that."""

    @property
    def name(self) -> str:
        """The name that the user gave, or else the script; "" if neither did."""
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
        """The run's Slurm job, and which node of several it is, in words; "" for neither."""
        return describe_place(self.begun) if self.begun else ""

    @property
    def total_steps(self) -> int:
        """How many it will take; 0 while that is not known."""
        return (self.begun.total_steps if self.begun else 0) or self.facts.total_steps

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


def is_final(run: RunDir) -> bool:
    """Whether a run has ended for good: Slurm will not start it again, even if it starts its job again."""
    try:
        status = known(run).status
    except OSError:
        return False
    if status.end is None:
        return False
    requeues = False
    with contextlib.suppress(ConfigError, OSError):
        requeues = config_of(run, status).requeue
    return status.stop_asked or not requeues or status.end.status == "completed"


def summarise(run: RunDir) -> RunInfo:
    """Reads what a list shows of a run, from the ends of its files. Never raises for their content."""
    about, damaged = read_about(run)
    info = _summarise(run, about)
    return replace(info, problem=damaged) if damaged and not info.problem else info


def run_name(run: RunDir) -> str:
    """Returns what `RunInfo.name` is, without reading the rest."""
    if named := read_about(run)[0].name:
        return named
    with contextlib.suppress(OSError):
        return known(run).status.name
    return ""


def _summarise(run: RunDir, about: About) -> RunInfo:
    # Liveness first: a run that ends between the two looks has its end on record by then.
    liveness = run.liveness()
    live = liveness.is_live
    try:
        status, facts = known(run, liveness)
    except OSError as error:
        why = f"cannot read {run.journal}: {error.strerror or error}"
        config, problem, _ = _read_config(run, None)
        return RunInfo(run, "unreadable", config, why, Summary(), "", _made(run), about=about)
    config, problem, newer = _read_config(run, status)
    # A copy of the directory has files of another age.
    started = status.started or _made(run)
    build = partial(
        RunInfo,
        run,
        config=config,
        started=started,
        facts=facts or NO_FACTS,
        about=about,
        begun=status.begun,
        journal_bytes=status.size,
        has_large_journal=status.size > current_settings().large_journal_mib << 20,
    )
    if why := describe_schema(status.journal):
        return build(status="newer", problem=why, summary=status.summary, reason="")
    build = partial(build, problem=problem)
    if newer:
        return build(status="newer", summary=status.summary, reason="")
    if status.end is not None and not live:
        if status.begun is None and config is not None:
            # Cancelled in the queue: no GPUs were chosen yet.
            build = partial(build, config=msgspec.structs.replace(config, device_ids=()))
        return build(status=status.end.status, summary=status.summary, reason=status.end.reason)
    if live or (not os.path.exists(run.journal) and _is_starting(started)):
        job = run.queued_job() if status.end else ""
        # Its job may just have put itself back into the queue; why it waits there is known a moment later.
        if waits := status.queued or (Queued(job=job) if job else None):
            waiting = None if waits.job else read_waiting(run.waits)
            if config is not None and waiting is not None:
                # GPUs are chosen anew at its start: those that were idle when it was queued say nothing.
                config = msgspec.structs.replace(config, device_ids=waiting.device_ids)
            reason = describe_queued(waits)
            return build(status="queued", summary=status.summary, config=config, reason=reason, waiting=waiting)
        # The recent rate, as on its screen.
        rate = None if status.stalled else status.rate
        summary = msgspec.structs.replace(status.summary, examples_per_second=rate)
        return build(status="running", summary=summary, reason=status.stalled)
    summary = status.summary
    if summary.examples_per_second is None:
        summary = msgspec.structs.replace(summary, examples_per_second=status.rate)
    reason = "its supervisor died without saying why; see supervisor.log"
    return build(status="lost", summary=summary, reason=reason)


def _made(run: RunDir) -> float | None:
    with contextlib.suppress(OSError):
        return run.config.stat().st_mtime
    return None


def _read_config(run: RunDir, status: Status | None) -> tuple[RunConfig | None, str, bool]:
    """Returns a run's configuration, what is wrong with it, and whether a newer version wrote it."""
    try:
        return config_of(run, status) if status else read_config(run), "", False
    except ConfigError as error:
        return None, str(error), any(problem.key == "schema" for problem in error.problems)
    except OSError as error:
        return None, f"cannot read {run.config}: {error.strerror or error}", False


def _is_starting(started: float | None) -> bool:
    return started is not None and time.time() - started < STARTING_S


def remaining_s(info: RunInfo) -> float | None:
    """Returns the seconds that a run needs for its remaining steps, without evaluations; None while not known.

    By its recent rate; a script that tells none is taken to go on as it did, once its start weighs little.
    """
    summary, config = info.summary, info.config
    total = info.total_steps
    if config is None or not 0 < summary.steps <= total:
        return None
    if summary.examples_per_second and config.global_batch_size:
        return (total - summary.steps) * config.global_batch_size / summary.examples_per_second
    is_told = summary.steps >= LEAST_DONE * total and not BACKENDS[config.backend].builtin
    return (total - summary.steps) * summary.seconds / summary.steps if is_told else None


def run_facts(run: RunDir, status: str, summary: Summary) -> dict[str, object]:
    """Returns a run and its results; null for what it did not reach."""
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
    """Returns what identifies a run in its configuration; null for what that lacks, or if it cannot be read."""
    names = ("backend", "model", "dataset", "script", "devices")
    return {name: getattr(config, name) if config and takes(config.backend, name) else None for name in names}


def read_only_reason(run: RunDir) -> str:
    """Says that a run has another schema than this version's, in words; "" if it has not."""
    if describe_schema(journal_schema(run)):
        return "a newer version of tuiapp wrote its journal: update tuiapp to resume or change it"
    try:
        read_config(run)
    except ConfigError as error:
        if any(problem.key == "schema" for problem in error.problems):
            return f"a newer version of tuiapp wrote its run.toml, this one knows schema {SCHEMA}: update tuiapp"
    except OSError:
        return ""
    return ""
