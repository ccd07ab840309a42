"""Becomes the supervisor of a queued run: `python -m tuiapp.trainers.launch.queued RUN_DIR GPU,GPU`.

The queue's keeper starts it in the environment and the working directory of whoever queued the run, with the GPUs to
choose from. What the run needs is checked again, for hours may have passed, and placed on what is free now.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tuiapp.trainers.config.files import is_full, write_atomically
from tuiapp.trainers.config.machine import inspect_machine
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.plan import Plan, write_plan
from tuiapp.trainers.config.run_config import RunConfig, to_toml
from tuiapp.trainers.config.slurm import SlurmError
from tuiapp.trainers.contract import gpu_leases
from tuiapp.trainers.contract.events import RunEnded, Status
from tuiapp.trainers.contract.journal import journal_end
from tuiapp.trainers.contract.lock import LockNote, write_note
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import Waiting, note_started, read_waiting, remove
from tuiapp.trainers.launch import LaunchError, resume
from tuiapp.trainers.launch.directory import directories, keep_code
from tuiapp.trainers.launch.prepare import prepare
from tuiapp.trainers.launch.processes import become_supervisor, start_job
from tuiapp.trainers.launch.slurm_job import has_begun
from tuiapp.trainers.state.status import append_event, known, last_attempt, read_config
from tuiapp.trainers.state.summary import summarise

DISK_IS_FULL = os.EX_TEMPFAIL
"""Exit code: the run waits on."""


def begin(run: RunDir, gpus: Sequence[str]) -> int:
    """Starts a run that waits; does nothing if it waits no more, or somebody has taken its GPUs meanwhile.

    Returns the exit code unless this process has become its supervisor.
    """
    try:
        lock = run.take_lock()
    except (BlockingIOError, FileNotFoundError):
        # Another keeper has started it, or it was deleted.
        return 0
    waiting = read_waiting(run.waits)
    if waiting is None or not waiting.is_known or has_started(run):
        return 0
    attempt = run.lock_note().attempt
    if not waiting.on_slurm:
        # Who cancels it ends this process; one that has submitted a job must note its id.
        write_note(lock, LockNote.of_this_process(attempt))
    try:
        return _begin(run, waiting, gpus, lock)
    finally:
        # It has not become a supervisor.
        write_note(lock, LockNote(attempt=attempt))


def _begin(run: RunDir, waiting: Waiting, gpus: Sequence[str], lock: int) -> int:
    with gpu_leases.choosing():
        if {lease.gpu for lease in gpu_leases.leases()} & set(gpus):
            return 0
        leases = gpu_leases.take(gpus, run.run_id)
    try:
        _start(run, waiting, gpus, lock, leases)
    except (ConfigError, LaunchError, SlurmError, OSError) as error:
        if is_full(error):
            return DISK_IS_FULL
        reason = str(error) or repr(error)
        if isinstance(error, OSError):
            reason = f"{run.path} cannot be written: {error.strerror or error}"
        end(run, "failed", reason)
        return 1
    return 0


def _start(run: RunDir, waiting: Waiting, gpus: Sequence[str], lock: int, leases: Sequence[int]) -> None:
    machine, config = inspect_machine(), asked(run, waiting)
    machine = msgspec.structs.replace(machine, gpus=tuple(gpu for gpu in machine.gpus if gpu.uuid in gpus))
    if last_attempt(run) and has_begun(run):
        resume(run, config, machine, lock, become_supervisor)
    else:
        config = msgspec.structs.replace(config, per_device_batch_size=waiting.per_device_batch_size)
        plan = prepare(config, machine)
        _rewrite(run, plan)
        if plan.config.launcher != "slurm":
            become_supervisor(run, journal_end(run.journal), (lock, *leases), str(lock), "")
        start_job(run, plan.config, lock)
    # Slurm has it, and its job may begin as soon as nobody here has the run.
    note_started(run)


def asked(run: RunDir, waiting: Waiting) -> RunConfig:
    """Returns a run's configuration with the devices that were asked for, before GPUs were chosen."""
    return msgspec.structs.replace(read_config(run), devices=waiting.devices, device_ids=waiting.device_ids)


def _rewrite(run: RunDir, plan: Plan) -> None:
    for directory in directories(run, plan):
        directory.mkdir(mode=0o700, exist_ok=True)
    write_plan(run.plan, plan)
    write_atomically(run.config, to_toml(plan.config).encode())
    keep_code(run, plan.config, last_attempt(run) + 1)


def has_started(run: RunDir) -> bool:
    """Returns whether a run has been started since it was queued."""
    status = known(run).status
    return bool(status.queued.job if status.queued else status.begun or status.end)


def end(run: RunDir, status: Status, reason: str) -> None:
    """Ends a queued run, whose lock the caller holds. Raises OSError."""
    append_event(run, RunEnded(status=status, reason=reason, summary=summarise(run).summary))
    remove(run.waits)


if __name__ == "__main__":
    sys.exit(begin(RunDir(Path(sys.argv[1])), [uuid for uuid in sys.argv[2].split(",") if uuid]))
