"""Starts a run and lets go of it: checks, makes the run directory, starts the supervisor, waits until it is up."""

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

from trainers.contract.catalog import BACKENDS, installed_version
from trainers.contract.config import RunConfig, to_toml
from trainers.contract.files import write_atomically
from trainers.contract.machine import Machine, inspect_machine
from trainers.contract.placement import place
from trainers.contract.rundir import RunDir, new_run_id

START_TIMEOUT_S = 30.0


class LaunchError(Exception):
    """The run could not be started; nothing of it is left behind."""


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
        ranks = config.devices if BACKENDS[config.backend].process_per_device else 1
        # One by one: with parents=True the mode would not be that of the directories between.
        for directory in (run.commands, run.rank(0).parent, *map(run.rank, range(ranks))):
            directory.mkdir(mode=0o700)
        write_atomically(run.config, to_toml(config).encode())
        environment = json.dumps(_describe_environment(config, machine), indent=2)
        write_atomically(run.environment, environment.encode() + b"\n")
    except OSError as error:
        shutil.rmtree(run.path, ignore_errors=True)
        raise LaunchError(f"Cannot write the run directory {run.path}: {error.strerror}.") from error
    return run


def _start_supervisor(run: RunDir) -> None:
    # -P: the directory the user stands in must not be searched for a package called `trainers`.
    command = [sys.executable, "-P", "-m", "trainers.runtime.supervisor", str(run.path)]
    with open(os.open(run.supervisor_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    deadline = time.monotonic() + START_TIMEOUT_S
    # The journal appears once the supervisor has the lock.
    while not run.journal.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            process.wait()
            said = run.supervisor_log.read_text(errors="replace").strip()[-2000:]
            raise LaunchError(f"The run's supervisor did not start (exit code {process.returncode}).\n{said}")
        time.sleep(0.005)
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
