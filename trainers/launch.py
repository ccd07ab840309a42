"""Starts or resumes a run and lets go of it: checks, makes its directory, starts the supervisor, waits for that."""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from trainers.config.catalog import BACKENDS, installed_version
from trainers.config.datasets import find_dataset
from trainers.config.files import read_end, read_limited, write_atomically
from trainers.config.machine import Machine, inspect_machine
from trainers.config.options import ConfigError, Problem
from trainers.config.placement import place
from trainers.config.relevance import without_idle
from trainers.config.run_config import MAX_FILE_BYTES, RunConfig, to_toml
from trainers.config.settings import read_settings
from trainers.config.telemetry import telemetry_interval_s
from trainers.contract import mailbox
from trainers.contract.events import RunStarted
from trainers.contract.journal import JournalReader, journal_end
from trainers.contract.manifest import CheckpointError, newest_usable
from trainers.contract.newer import why_not_read, why_read_only
from trainers.contract.notices import leave_order
from trainers.contract.rundir import RunDir, make_run_dir
from trainers.contract.strays import end_supervisor
from trainers.contract.summary import read_config

START_TIMEOUT_S = 30.0


class LaunchError(Exception):
    """The run could not be started; nothing of it is left behind. Or it could not be resumed, and is as it was."""


class Resumed(NamedTuple):
    """What a run goes on from."""

    attempt: int
    step: int
    """The checkpoint's."""
    notes: list[str]
    """Newer checkpoints that could not be used, and why."""
    offset: int
    """Where its first event stands in the journal."""


def launch(config: RunConfig, runs_dir: Path, machine: Machine | None = None) -> RunDir:
    """Start a run in processes of its own.

    Args:
        config: What to run; `auto` values are made exact for this machine.
        runs_dir: Where the run's directory is made; created if need be.
        machine: What this machine has, if that is known already.

    Returns:
        The directory of the run, whose supervisor is up.

    Raises:
        ConfigError: this machine cannot run it.
        LaunchError: the run directory cannot be written, or the supervisor does not start.
    """
    machine = machine or inspect_machine()
    config = _place(config, machine)
    run = _make_directory(config, runs_dir, machine)
    try:
        _start_supervisor(run)
    except OSError as error:
        shutil.rmtree(run.path, ignore_errors=True)
        raise LaunchError(f"The run's supervisor cannot be started: {error.strerror or error}.") from error
    except BaseException:
        shutil.rmtree(run.path, ignore_errors=True)
        raise
    return run


def resume(run: RunDir, config: RunConfig | None = None, machine: Machine | None = None) -> Resumed:
    """Go on with a run that has ended, or was lost, from its newest checkpoint that is whole.

    Args:
        run: Its directory.
        config: How to go on, where that is not as before: more epochs, other devices. Takes the place of run.toml.
        machine: What this machine has, if that is known already.

    Returns:
        What it goes on from; the supervisor is up.

    Raises:
        ConfigError: this machine cannot run it, or run.toml cannot be read.
        LaunchError: it runs already, has nothing left to do, has no checkpoint that fits, or does not start.
    """
    running = f"{run.run_id} is running. To watch it: tuiapp attach {run.run_id}"
    if run.is_live():
        raise LaunchError(running)
    if reason := why_read_only(run) or why_not_read(run):
        raise LaunchError(f"{run.run_id} cannot be resumed: {reason}.")
    try:
        lock = run.take_lock()
    except BlockingIOError:
        # Somebody else resumed it a moment ago.
        raise LaunchError(running) from None
    except OSError as error:
        raise LaunchError(f"Cannot write the run directory {run.path}: {error.strerror}.") from error
    try:
        return _resume(run, lock, config, machine)
    finally:
        # The supervisor has the lock now.
        os.close(lock)


def _resume(run: RunDir, lock: int, config: RunConfig | None, machine: Machine | None) -> Resumed:
    """The same for a run whose lock is held."""
    try:
        before = _config_text(run)
        config = _place(config or read_config(run), machine or inspect_machine())
        data = find_dataset(config.dataset)
        checkpoint, notes = newest_usable(run.checkpoints, config, data.classes)
        if (was := checkpoint.manifest.input_shape) != data.input_shape:
            raise CheckpointError(
                f"its images were {list(was)}, those of {config.dataset} are {list(data.input_shape)}"
            )
    except CheckpointError as error:
        raise LaunchError(f"{run.run_id} cannot be resumed: {error}.") from error
    except OSError as error:
        raise LaunchError(f"Cannot read {run.config}: {error.strerror}.") from error
    step = checkpoint.manifest.step
    if step >= config.total_steps:
        limited = step == config.max_steps
        more = f"max_steps={2 * config.max_steps}" if limited else f"epochs={2 * config.epochs}"
        more = f"tuiapp run --resume {run.run_id} --set {more}"
        raise LaunchError(f"{run.run_id} has made all its {config.total_steps:,} steps. To go on further: {more}")
    notes = [f"{note}; going on from {checkpoint.path.name}" for note in notes]
    try:
        for directory in _directories(run, config):
            directory.mkdir(mode=0o700, exist_ok=True)
        # What was asked of an attempt that did not live to hear it is not asked of this one.
        mailbox.take(run.commands)
        leave_order(run, read_settings()[0])
        _rewrite(run.config, to_toml(config).encode())
        try:
            offset = journal_end(run.journal)
            started = _start_supervisor(run, offset, (lock,), str(lock), checkpoint.path.name, *notes)
        except BaseException:
            _rewrite(run.config, before)
            raise
    except OSError as error:
        raise LaunchError(f"Cannot write the run directory {run.path}: {error.strerror}.") from error
    return Resumed(started.attempt, step, notes, offset)


def _config_text(run: RunDir) -> bytes:
    """What stands in run.toml, right or wrong."""
    try:
        return read_limited(run.config, MAX_FILE_BYTES).encode()
    except ValueError as error:
        raise ConfigError([Problem("", str(error))], str(run.config)) from None


def _place(config: RunConfig, machine: Machine) -> RunConfig:
    """`place`, and whether the frameworks that are installed can use what it gives."""
    # Refused before anything starts, as all that is set wrongly.
    telemetry_interval_s()
    config = without_idle(place(config, machine))
    if config.platform == "cuda" and (reason := BACKENDS[config.backend].without_gpus()):
        message = f"{config.backend} cannot use this machine's GPUs: {reason}; or take platform cpu."
        raise ConfigError([Problem("platform", message)])
    return config


def _rewrite(path: Path, data: bytes) -> None:
    """Replace a file's content; its time stays: run.toml's says when the run was launched."""
    times = path.stat()
    write_atomically(path, data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def _directories(run: RunDir, config: RunConfig) -> list[Path]:
    """What a run's directory holds from the beginning, each after its parent."""
    processes = config.devices if BACKENDS[config.backend].process_per_device else 1
    # One by one: with parents=True the mode would not be that of the directories between.
    return [run.commands, run.rank(0).parent, *map(run.rank, range(processes))]


def _make_directory(config: RunConfig, runs_dir: Path, machine: Machine) -> RunDir:
    try:
        runs_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        run = make_run_dir(runs_dir.absolute(), config.backend, config.model)
    except OSError as error:
        raise LaunchError(
            f"Cannot make a run directory in {runs_dir}: {error.strerror}. "
            f"Choose another place with --runs-dir or TUIAPP_RUNS_DIR."
        ) from error
    try:
        for directory in _directories(run, config):
            directory.mkdir(mode=0o700)
        write_atomically(run.config, to_toml(config).encode())
        environment = json.dumps(_describe_environment(config, machine), indent=2)
        write_atomically(run.environment, environment.encode() + b"\n")
        leave_order(run, read_settings()[0])
    except OSError as error:
        shutil.rmtree(run.path, ignore_errors=True)
        raise LaunchError(f"Cannot write the run directory {run.path}: {error.strerror}.") from error
    return run


def _start_supervisor(run: RunDir, offset: int = 0, passed: Sequence[int] = (), *resumed: str) -> RunStarted:
    """Start it and wait for its first event.

    Args:
        run: The run.
        offset: Where that will stand in the journal.
        passed: Descriptors that it shall have.
        resumed: Its arguments beyond the directory.
    """
    # -P: the directory the user stands in must not be searched for a package called `trainers`.
    command = [sys.executable, "-P", "-m", "trainers.runtime.supervisor", str(run.path), *resumed]
    try:
        with open(os.open(run.supervisor_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
            said_before = log.tell()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=passed,
                start_new_session=True,
                # Nothing starts from a directory that was removed.
                cwd=None if _working_directory() else "/",
            )
        started = _wait_for_start(run, offset, process, said_before)
    except BaseException:
        # Ctrl-C, too: what nobody knows of must not train.
        end_supervisor(run.path)
        raise
    # Reaps it if this process is still there when the run ends.
    threading.Thread(target=process.wait, name="reap-supervisor", daemon=True).start()
    return started


def _wait_for_start(run: RunDir, offset: int, process: subprocess.Popen[bytes], said_before: int) -> RunStarted:
    deadline = time.monotonic() + START_TIMEOUT_S
    reader = JournalReader(run.journal, offset)
    # It is written once the supervisor has the lock.
    while not (begun := [event for event in reader.read() if isinstance(event, RunStarted)]):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            process.wait()
            said = read_end(run.supervisor_log, said_before, 8000).strip()[-2000:]
            raise LaunchError(f"The run's supervisor did not start (exit code {process.returncode}).\n{said}")
        time.sleep(0.005)
    return begun[0]


def _working_directory() -> str | None:
    """Where the user stands; None when that was removed."""
    try:
        return os.getcwd()
    except OSError:
        return None


def _describe_environment(config: RunConfig, machine: Machine) -> dict[str, object]:
    distributions = ("tuiapp", "numpy", *BACKENDS[config.backend].packages)
    return {
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: installed_version(name) for name in distributions},
        "cpu_cores": machine.cpu_cores,
        "memory_total_bytes": machine.memory_total_bytes,
        "driver": machine.driver,
        "gpus": [{"index": gpu.index, "uuid": gpu.uuid, "name": gpu.name} for gpu in machine.gpus],
        "command_line": sys.argv,
        "working_directory": _working_directory(),
        "git_commit": _git_commit(),
    }


def _git_commit() -> str | None:
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=2, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
