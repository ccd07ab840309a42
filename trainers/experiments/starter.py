"""Starts one queued run: `python -m tuiapp.trainers.experiments.starter RUN_DIR GPU,GPU`.

The keeper starts it in the environment and the working directory of whoever queued the run, with the GPUs to choose
from; it ends once the run's supervisor is up. What the run needs is checked again: hours may have passed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tuiapp.trainers.config.files import write_atomically
from tuiapp.trainers.config.machine import Machine, inspect_machine
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.plan import Plan, write_plan
from tuiapp.trainers.config.run_config import RunConfig, to_toml
from tuiapp.trainers.config.slurm import SlurmError
from tuiapp.trainers.contract import gpu_leases, mailbox
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.waiting import Waiting, read_waiting, write_waiting
from tuiapp.trainers.experiments.queue import end, has_started
from tuiapp.trainers.launch import LaunchError, resume, start
from tuiapp.trainers.launch.directory import directories, keep_code
from tuiapp.trainers.launch.prepare import prepare
from tuiapp.trainers.launch.processes import start_job
from tuiapp.trainers.launch.slurm_job import has_begun
from tuiapp.trainers.state.status import last_attempt, read_config


def begin(run: RunDir, gpus: Sequence[str]) -> str:
    """Starts a run that waits; returns why it could not be started, "" if it was, or waits no more, or again.

    It waits again if somebody else has taken its GPUs meanwhile.
    """
    try:
        lock = run.take_lock()
    except (BlockingIOError, FileNotFoundError):
        # Another keeper's starter has it, or it was deleted.
        return ""
    try:
        waiting = read_waiting(run.waits)
        if waiting is None:
            return ""
        if has_started(run):
            problem = ""
        else:
            with gpu_leases.choosing():
                if {lease.gpu for lease in gpu_leases.leases()} & set(gpus):
                    return ""
                leases = gpu_leases.take(gpus, run.run_id)
            try:
                problem = _start(run, waiting, gpus, lock, leases)
            finally:
                gpu_leases.let_go(leases)
        if not problem or waiting.retry:
            note_started(run, waiting)
        return problem
    finally:
        os.close(lock)


def note_started(run: RunDir, waiting: Waiting) -> None:
    """Takes a run that has started out of the queue; what its session had stays only if it may start again."""
    kept = msgspec.structs.replace(waiting, tried=waiting.tried + 1)
    if not kept.retry:
        kept = msgspec.structs.replace(kept, environment={})
    if kept.retry or kept.exclusive:
        write_waiting(run.kept, kept)
    else:
        # The keeper need not live until the run ends, and nobody else removes it.
        run.kept.unlink(missing_ok=True)
    run.waits.unlink(missing_ok=True)


def _start(run: RunDir, waiting: Waiting, gpus: Sequence[str], lock: int, leases: Sequence[int]) -> str:
    try:
        machine, config = _with_gpus(inspect_machine(), gpus), asked(run, waiting)
        if last_attempt(run) and has_begun(run):
            resume(run, config, machine, lock)
            return ""
        each = waiting.per_device_batch_size
        plan = prepare(msgspec.structs.replace(config, per_device_batch_size=each), machine)
        _rewrite(run, plan)
        if plan.config.launcher == "slurm":
            start_job(run, plan.config, lock)
        else:
            start(run, lock, leases)
    except (ConfigError, LaunchError, SlurmError) as error:
        reason = str(error) or repr(error)
    except OSError as error:
        reason = f"{run.path} cannot be written: {error.strerror or error}"
    else:
        return ""
    end(run, "failed", reason)
    return reason


def asked(run: RunDir, waiting: Waiting) -> RunConfig:
    """Returns a run's configuration with the devices that were asked for, before GPUs were chosen."""
    return msgspec.structs.replace(read_config(run), devices=waiting.devices, device_ids=waiting.device_ids)


def _with_gpus(machine: Machine, uuids: Sequence[str]) -> Machine:
    return msgspec.structs.replace(machine, gpus=tuple(gpu for gpu in machine.gpus if gpu.uuid in uuids))


def _rewrite(run: RunDir, plan: Plan) -> None:
    for directory in directories(run, plan):
        directory.mkdir(mode=0o700, exist_ok=True)
    # Commands to an attempt that ended before it read them are not for this one.
    mailbox.take(run.commands)
    write_plan(run.plan, plan)
    write_atomically(run.config, to_toml(plan.config).encode())
    keep_code(run, plan.config, last_attempt(run) + 1)


def main() -> int:
    """Starts the run that the arguments name."""
    run = RunDir(Path(sys.argv[1]))
    problem = begin(run, [uuid for uuid in sys.argv[2].split(",") if uuid])
    print(f"{run.run_id}: {problem or 'started'}", file=sys.stderr)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
