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
from pathlib import Path
from typing import NamedTuple

from trainers.contract.catalog import BACKENDS, installed_version
from trainers.contract.config import RunConfig, to_toml
from trainers.contract.data_catalog import find_dataset
from trainers.contract.files import write_atomically
from trainers.contract.machine import Machine, inspect_machine
from trainers.contract.manifest import CheckpointError, newest_usable
from trainers.contract.placement import place
from trainers.contract.rundir import RunDir, new_run_id
from trainers.contract.runs import last_attempt, read_config

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
    config = place(config, machine)
    run = _make_directory(config, runs_dir, machine)
    try:
        _start_supervisor(run)
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
    if run.is_live():
        raise LaunchError(f"{run.run_id} is running. To watch it: tuiapp attach {run.run_id}")
    try:
        before = run.config.read_bytes()
        config = place(config or read_config(run), machine or inspect_machine())
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
        more = f"tuiapp run --resume {run.run_id} --set epochs={2 * config.epochs}"
        raise LaunchError(f"{run.run_id} has made all its {config.total_steps:,} steps. To go on further: {more}")
    attempt = last_attempt(run)
    notes = [f"{note}; going on from {checkpoint.path.name}" for note in notes]
    try:
        for rank in range(_processes(config)):
            run.rank(rank).mkdir(mode=0o700, exist_ok=True)
        write_atomically(run.config, to_toml(config).encode())
        try:
            _start_supervisor(run, attempt + 1, checkpoint.path.name, *notes)
        except BaseException:
            write_atomically(run.config, before)
            raise
    except OSError as error:
        raise LaunchError(f"Cannot write the run directory {run.path}: {error.strerror}.") from error
    return Resumed(attempt + 1, step, notes)


def _processes(config: RunConfig) -> int:
    """How many rank processes a run has."""
    return config.devices if BACKENDS[config.backend].process_per_device else 1


def _make_directory(config: RunConfig, runs_dir: Path, machine: Machine) -> RunDir:
    run = RunDir(runs_dir.absolute() / new_run_id(config.backend, config.model))
    try:
        runs_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        run.path.mkdir(mode=0o700)
    except OSError as error:
        raise LaunchError(
            f"Cannot make a run directory in {runs_dir}: {error.strerror}. "
            f"Choose another place with --runs-dir or TUIAPP_RUNS_DIR."
        ) from error
    try:
        # One by one: with parents=True the mode would not be that of the directories between.
        for directory in (run.commands, run.rank(0).parent, *map(run.rank, range(_processes(config)))):
            directory.mkdir(mode=0o700)
        write_atomically(run.config, to_toml(config).encode())
        environment = json.dumps(_describe_environment(config, machine), indent=2)
        write_atomically(run.environment, environment.encode() + b"\n")
    except OSError as error:
        shutil.rmtree(run.path, ignore_errors=True)
        raise LaunchError(f"Cannot write the run directory {run.path}: {error.strerror}.") from error
    return run


def _start_supervisor(run: RunDir, attempt: int = 1, *resumed: str) -> None:
    """Start it and wait for its first event.

    Args:
        run: The run.
        attempt: What number it will give the attempt.
        resumed: The checkpoint's name, and notes.
    """
    # -P: the directory the user stands in must not be searched for a package called `trainers`.
    command = [sys.executable, "-P", "-m", "trainers.runtime.supervisor", str(run.path), *resumed]
    with open(os.open(run.supervisor_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    deadline = time.monotonic() + START_TIMEOUT_S
    # It is written once the supervisor has the lock.
    while last_attempt(run) < attempt:
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            process.wait()
            said = run.supervisor_log.read_text(errors="replace").strip()[-2000:]
            raise LaunchError(f"The run's supervisor did not start (exit code {process.returncode}).\n{said}")
        time.sleep(0.005 if attempt == 1 else 0.05)
    # Reaps it if this process is still there when the run ends.
    threading.Thread(target=process.wait, name="reap-supervisor", daemon=True).start()


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
        "working_directory": os.getcwd(),
        "git_commit": _git_commit(),
    }


def _git_commit() -> str | None:
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=2, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
