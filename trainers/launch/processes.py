"""Starts a run's supervisor, or its Slurm job, in processes that outlive this one."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from tuiapp.trainers.config import slurm
from tuiapp.trainers.config.bootstrap import module
from tuiapp.trainers.config.files import open_own, read_end, write_atomically
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import RunStarted
from tuiapp.trainers.contract.journal import JournalReader
from tuiapp.trainers.contract.orphans import SUPERVISOR, TOKEN
from tuiapp.trainers.contract.rundir import LISTENER_VARIABLE, RunDir
from tuiapp.trainers.launch.directory import working_directory
from tuiapp.trainers.launch.prepare import LaunchError

SUPERVISOR_MODULE = "tuiapp.trainers.run.supervisor"
START_TIMEOUT_S = 30.0
STEP_TIMEOUT_S = 90.0
"""Seconds for a job within an allocation: `srun` has to start it first, which then starts the supervisor."""


def start_supervisor(
    run: RunDir,
    offset: int = 0,
    passed: Sequence[int] = (),
    *resumed: str,
    environment: Mapping[str, str] | None = None,
) -> RunStarted:
    """Starts the supervisor and waits for its first event, at `offset` of the journal.

    `passed` are descriptors to inherit, `resumed` its arguments beyond the directory; `environment` is this process's
    if None.
    """
    command = module(SUPERVISOR_MODULE, str(run.path), *resumed)
    return _start(run, command, START_TIMEOUT_S, offset, passed, environment)


def become_supervisor(
    run: RunDir,
    offset: int = 0,
    passed: Sequence[int] = (),
    *resumed: str,
    environment: Mapping[str, str] | None = None,
) -> NoReturn:
    """Becomes the supervisor: this process's output is its log. Raises OSError."""
    for fd in passed:
        os.set_inheritable(fd, True)
    command = module(SUPERVISOR_MODULE, str(run.path), *resumed)
    os.execve(command[0], command, environment or os.environ)


def _start(
    run: RunDir,
    command: list[str],
    timeout_s: float,
    offset: int = 0,
    passed: Sequence[int] = (),
    environment: Mapping[str, str] | None = None,
) -> RunStarted:
    process = None
    try:
        process, said_before = start_process(run.supervisor_log, command, passed, environment)
        started = _wait_for_start(run, offset, process, said_before, timeout_s)
    except BaseException:
        # Ctrl-C, too: a run that nobody knows of must not train. Its reaper ends what it has started.
        if process is not None:
            process.kill()
            process.wait()
        raise
    # Reaps it if this process still exists when the run ends, and can have a thread.
    with contextlib.suppress(RuntimeError):
        threading.Thread(target=process.wait, name="reap-supervisor", daemon=True).start()
    return started


def _wait_for_start(
    run: RunDir, offset: int, process: subprocess.Popen[bytes], said_before: int, timeout_s: float
) -> RunStarted:
    deadline = time.monotonic() + timeout_s
    reader = JournalReader(run.journal, offset)
    # It is written once the supervisor has the lock.
    while not (begun := [event for event in reader.read() if isinstance(event, RunStarted)]):
        if process.poll() is not None or time.monotonic() > deadline:
            said = read_end(run.supervisor_log, said_before, 8000).strip()[-2000:]
            code = process.returncode
            how = f"within {timeout_s:.0f} s" if code is None else f"(exit code {code})"
            raise LaunchError(f"The run's supervisor did not start {how}.\n{said}")
        time.sleep(0.005)
    return begun[0]


def start_job(run: RunDir, config: RunConfig, lock: int | None = None) -> None:
    """Submits a run's job to Slurm, and starts the process that waits for it; in an allocation, the job itself."""
    command = module("tuiapp.trainers.launch.slurm_job", str(run.path))
    if slurm.inside_allocation():
        # `salloc` gives its shell on the machine where it was typed.
        elsewhere = "SLURMD_NODENAME" not in os.environ
        first = ["srun", "--nodes=1", "--ntasks=1", "--overlap"] if elsewhere else []
        # Until it has the run's lock, the run would count as lost.
        _start(run, [*first, *command], STEP_TIMEOUT_S)
        return
    script = run.path / "slurm.sh"
    write_atomically(script, slurm.job_script(config, run.path, command).encode())
    taken = run.take_lock() if lock is None else lock
    try:
        _start_watch(run, slurm.submit(script), taken)
    finally:
        if lock is None:
            os.close(taken)


def watch_queue(run: RunDir) -> None:
    """Starts the process that watches a queued run's Slurm job again, where Slurm's commands are."""
    if not (job := run.queued_job()) or shutil.which("squeue") is None:
        return
    # Another view may have started it, and the directory may be another user's.
    with contextlib.suppress(OSError):
        lock = run.take_lock(0.0)
        try:
            _start_watch(run, job, lock)
        finally:
            os.close(lock)


def _start_watch(run: RunDir, job: str, lock: int) -> None:
    start_process(run.supervisor_log, module("tuiapp.trainers.run.slurm_queue", str(run.path), job, str(lock)), (lock,))


def start_agent(run: RunDir, node: int, rank: int, listener: str, log: Path) -> subprocess.Popen[bytes]:
    """Starts this machine's agent of a run whose ranks somebody else has started; they report to the socket `listener`.

    It is `node` of their job, 0 if that is not known, and has `rank`; `log` gets what it says.
    """
    environment = {**apart(), LISTENER_VARIABLE: listener}
    command = module("tuiapp.trainers.run.node", str(run.path), str(node), str(rank))
    process, _ = start_process(log, command, environment=environment)
    threading.Thread(target=process.wait, name="reap-agent", daemon=True).start()
    return process


def apart() -> dict[str, str]:
    """Returns the environment of what outlives the run that was launched, whose processes are known by these two."""
    return {name: value for name, value in os.environ.items() if name not in (TOKEN, SUPERVISOR)}


def start_process(
    log_file: Path,
    command: list[str],
    passed: Sequence[int] = (),
    environment: Mapping[str, str] | None = None,
    directory: str | None = None,
) -> tuple[subprocess.Popen[bytes], int]:
    """Starts a command in its own session; returns it, and the length that its log had."""
    with open_own(log_file, "ab") as log:
        said_before = log.tell()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=passed,
            env=environment,
            start_new_session=True,
            # Nothing starts from a directory that was removed.
            cwd=directory if directory else None if working_directory() else "/",
        )
    return process, said_before
