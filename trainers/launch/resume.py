"""Resumes a run that has ended or was lost, from a checkpoint; a script starts again."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from tuiapp.trainers.config import slurm
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.files import read_limited, write_atomically
from tuiapp.trainers.config.machine import Machine, inspect_machine
from tuiapp.trainers.config.options import ConfigError, Problem
from tuiapp.trainers.config.plan import Plan, write_plan
from tuiapp.trainers.config.run_config import MAX_FILE_BYTES, RunConfig, to_toml
from tuiapp.trainers.config.settings import read_settings
from tuiapp.trainers.config.slurm import SlurmError
from tuiapp.trainers.config.user_code import UserCodeError, read_text
from tuiapp.trainers.contract import gpu_leases, sidecars
from tuiapp.trainers.contract.events import RunStarted
from tuiapp.trainers.contract.journal import journal_end
from tuiapp.trainers.contract.manifest import CheckpointError, list_checkpoints
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import write_notification_config
from tuiapp.trainers.launch.directory import code_copies, directories, keep_code
from tuiapp.trainers.launch.prepare import LaunchError, prepare
from tuiapp.trainers.launch.processes import start_job, start_supervisor
from tuiapp.trainers.state.history import find_gaps
from tuiapp.trainers.state.resume_point import (
    NOT_ENDED,
    SCRIPT_COMPLETED,
    ResumePoint,
    all_made,
    doubled,
    first_usable,
    resume_points,
)
from tuiapp.trainers.state.run_state import has_more
from tuiapp.trainers.state.status import known, last_attempt, read_config
from tuiapp.trainers.state.summary import read_only_reason, summarise


class Resumed(NamedTuple):
    attempt: int
    step: int
    notes: list[str]
    """Newer checkpoints that could not be used, and why; the steps that the journal will lack."""
    offset: int
    """Start of its first event in the journal."""


def go_on(run: RunDir, plan: Plan, environment: Mapping[str, str]) -> None:
    """Starts the supervisor of a further attempt of a run that has ended, for ranks that somebody else has started.

    `environment` is the supervisor's. Raises ConfigError and LaunchError, as `resume`.
    """
    _check_readable(run)
    lock = _take_lock(run)
    try:
        _keep_last_step(run)
        _start_attempt(run, plan, _config_text(run), lock, "", environment=environment)
    finally:
        os.close(lock)


def resume(
    run: RunDir,
    config: RunConfig | None = None,
    machine: Machine | None = None,
    lock: int | None = None,
    start: Callable[..., RunStarted] = start_supervisor,
) -> Resumed:
    """Resumes a run that has ended, or was lost, from its newest complete checkpoint that the journal covers.

    If the journal covers none, from the one that leaves the smallest gap in it, which the notes name. The supervisor is
    up when this returns; in Slurm's queue the run's job is. `config`, with more epochs or other devices, replaces
    run.toml. `lock` is the descriptor that holds the run's lock, if the caller has taken it; `start` starts the
    supervisor.

    Raises:
        ConfigError: This machine cannot run it, or run.toml cannot be read.
        LaunchError: It runs already, has nothing left to do, has no checkpoint that fits, or does not start.
    """
    if lock is None and run.is_live():
        raise _running(run)
    _check_readable(run)
    status = summarise(run).status
    lock = _take_lock(run) if lock is None else os.dup(lock)
    try:
        return _resume(run, lock, status, config, machine, start)
    finally:
        # The supervisor has the lock now.
        os.close(lock)


def _refused(run: RunDir, why: str, instead: str = "") -> LaunchError:
    return LaunchError(f"{run.run_id} cannot be resumed: {why}.{instead}")


def _running(run: RunDir) -> LaunchError:
    return _refused(run, NOT_ENDED, f" To watch it: tuiapp attach {run.run_id}")


def _check_readable(run: RunDir) -> None:
    if reason := read_only_reason(run):
        raise _refused(run, reason)
    try:
        known(run)
    except OSError as error:
        why = "is a symbolic link" if os.path.islink(run.journal) else error.strerror or str(error)
        raise _refused(run, f"{run.journal} cannot be read: {why}") from error


def _take_lock(run: RunDir) -> int:
    try:
        lock = run.take_lock()
        # Commands to an attempt that ended before it read them are not for the next one.
        sidecars.take_commands(run.commands)
        return lock
    except BlockingIOError:
        # Somebody else resumed it a moment ago.
        raise _running(run) from None
    except OSError as error:
        raise LaunchError(f"Cannot write the run directory {run.path}: {error.strerror}.") from error


def _resume(
    run: RunDir,
    lock: int,
    status: str,
    config: RunConfig | None,
    machine: Machine | None,
    start: Callable[..., RunStarted],
) -> Resumed:
    try:
        before = _config_text(run)
        launched = read_config(run)
        plan = prepare(config or launched, machine or inspect_machine(), resumes=True)
        if not (BACKENDS[launched.backend].builtin and BACKENDS[plan.config.backend].builtin):
            if launched.backend != plan.config.backend:
                raise CheckpointError(f"it is a run of backend {launched.backend}: start a new run for another")
            return _restart(run, lock, status, plan, before, start, changed=config not in (None, launched))
        config, data = plan.config, plan.data
        checkpoints, problems = list_checkpoints(run.checkpoints)
        point, notes = first_usable(resume_points(run, checkpoints), problems, config, data.classes)
        checkpoint, step = point.checkpoint, point.step
        if (was := checkpoint.manifest.input_shape) != data.input_shape:
            raise CheckpointError(
                f"its inputs were {list(was)}, those of {config.dataset} are {list(data.input_shape)}"
            )
    except CheckpointError as error:
        raise _refused(run, str(error)) from error
    except OSError as error:
        raise LaunchError(f"Cannot read {run.config}: {error.strerror}.") from error
    if not has_more(step, plan.total_steps, status):
        key, value = doubled(config, step)
        further = f" To train further: tuiapp run --resume {run.run_id} --set {key}={value}"
        raise _refused(run, all_made(plan.total_steps), further)
    # That of the checkpoint, whatever has become of the data.
    plan = msgspec.structs.replace(plan, normalization=checkpoint.manifest.normalization)
    newer = [saved.path.name for saved in checkpoints if saved.manifest.step > step and saved.manifest.finite]
    if newer and point.covered and not notes:
        notes = [f"{newer[0]} is newer than the run's journal"]
    if checkpoint.manifest.data_checksum != data.checksum:
        notes = [*notes, f"the arrays of {config.dataset} have changed since it was saved"]
    notes = [f"{note}; resuming from {checkpoint.path.name}" for note in [*notes, *_changed_code(run, config)]]
    # Views find missing steps on their own: they are not written into the journal.
    gap = [] if point.covered else [_what_lacks(run, point)]
    attempt, offset = _start_attempt(run, plan, before, lock, checkpoint.path.name, *notes, start=start)
    return Resumed(attempt, step, [*notes, *gap], offset)


def _restart(
    run: RunDir, lock: int, status: str, plan: Plan, before: bytes, start: Callable[..., RunStarted], *, changed: bool
) -> Resumed:
    """Starts a script again, which loads what it has saved itself; one that has completed, only with a change."""
    if status == "completed" and not changed:
        further = f" To train further: tuiapp run --resume {run.run_id} -- ARGUMENTS."
        raise _refused(run, SCRIPT_COMPLETED, f"{further} To run it anew: tuiapp run --like {run.run_id}")
    with contextlib.suppress(OSError):
        # A full disk does not keep it from starting again.
        keep_code(run, plan.config, last_attempt(run) + 1)
        _keep_last_step(run)
    attempt, offset = _start_attempt(run, plan, before, lock, "", start=start)
    return Resumed(attempt, 0, [], offset)


def _keep_last_step(run: RunDir) -> None:
    write_atomically(run.last_step, str(summarise(run).summary.steps).encode())


def _start_attempt(
    run: RunDir,
    plan: Plan,
    before: bytes,
    lock: int,
    *resumed: str,
    environment: Mapping[str, str] | None = None,
    start: Callable[..., RunStarted] = start_supervisor,
) -> tuple[int, int]:
    """Starts the supervisor of a further attempt; returns its number, and its first event's offset in the journal.

    `before` is the text of run.toml, restored if it does not start; `resumed` the supervisor's arguments after the
    lock.
    """
    try:
        for directory in directories(run, plan):
            directory.mkdir(mode=0o700, exist_ok=True)
        write_notification_config(run, read_settings()[0])
        # Before run.toml, which alone a later resume reads.
        write_plan(run.plan, plan)
        _rewrite(run.config, to_toml(plan.config).encode())
        try:
            offset = journal_end(run.journal)
            if plan.config.launcher == "slurm" and not slurm.inside_allocation():
                start_job(run, plan.config, lock)
                return last_attempt(run) + 1, offset
            with gpu_leases.choosing():
                leases = gpu_leases.take(plan.config.device_ids, run.run_id) if plan.config.launcher == "local" else []
            try:
                passed = (lock, *leases)
                started = start(run, offset, passed, str(lock), *resumed, environment=environment)
                return started.attempt, offset
            finally:
                gpu_leases.let_go(leases)
        except BaseException:
            _rewrite(run.config, before)
            raise
    except SlurmError as error:
        raise LaunchError(f"Slurm takes no job: {error}.") from error
    except OSError as error:
        raise LaunchError(f"Cannot write the run directory {run.path}: {error.strerror}.") from error


def _what_lacks(run: RunDir, point: ResumePoint) -> str:
    gaps = find_gaps(run.journal)
    gaps.begin(point.step, point.checkpoint.manifest.devices)
    name = point.checkpoint.path.name
    return f"{gaps.words or f'the commit of {name} is missing from the journal'}; resuming from {name}"


def _config_text(run: RunDir) -> bytes:
    try:
        return read_limited(run.config, MAX_FILE_BYTES).encode()
    except ValueError as error:
        raise ConfigError([Problem("", str(error))], str(run.config)) from None


def _changed_code(run: RunDir, config: RunConfig) -> list[str]:
    changed = []
    for file, copy in code_copies(run, config).items():
        try:
            same = read_text(file) == read_text(copy)
        except UserCodeError:
            same = False
        if not same:
            changed.append(f"{file} has changed since the run was launched with what is kept in {copy}")
    return changed


def _rewrite(path: Path, data: bytes) -> None:
    times = path.stat()
    write_atomically(path, data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
