"""Starts or resumes a run and detaches from it: checks, makes its directory, starts the supervisor, waits for that."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from trainers.config import slurm
from trainers.config.catalog import BACKENDS
from trainers.config.dataset_error import DatasetError
from trainers.config.datasets import EXAMINED, check_images, find_dataset
from trainers.config.environment import hang_limit_s, telemetry_interval_s
from trainers.config.files import make_private, read_end, read_limited, write_atomically
from trainers.config.installed import Installed, installed_version
from trainers.config.interpreters import Interpreter, find_interpreter, find_program
from trainers.config.machine import Machine, inspect_machine
from trainers.config.memory import check_data_fits, wants_streaming
from trainers.config.mirror import OFF, mirror_directory, mirror_fault, place_mirror
from trainers.config.options import ConfigError, Problem
from trainers.config.placement import check_facts, place
from trainers.config.plan import Plan, make_plan, write_plan
from trainers.config.relevance import without_idle
from trainers.config.run_config import MAX_FILE_BYTES, OPTIONS, RunConfig, to_toml
from trainers.config.script import read_code, subject
from trainers.config.settings import read_settings
from trainers.config.slurm import SlurmError
from trainers.config.user_code import UserCodeError, files_of, read_text
from trainers.contract import mailbox
from trainers.contract.about import About, write_about
from trainers.contract.events import RunStarted
from trainers.contract.gaps import find_gaps
from trainers.contract.journal import JournalReader, journal_end
from trainers.contract.manifest import CheckpointError, list_checkpoints
from trainers.contract.notices import write_notification_config
from trainers.contract.resume_point import ResumePoint, first_usable, has_more, resume_points
from trainers.contract.rundir import RunDir, make_run_dir
from trainers.contract.summary import last_attempt, read_config, read_only_reason, summarise, unreadable_reason
from trainers.examination import examine

START_TIMEOUT_S = 30.0

MIRROR_VARIABLE = "TUIAPP_MIRROR"
"""The key `mirror` of a run that a script begins by itself."""


class LaunchError(Exception):
    """The run could not be started, and leaves nothing behind; or it could not be resumed, and is unchanged."""


class Resumed(NamedTuple):
    attempt: int
    step: int
    notes: list[str]
    """Newer checkpoints that could not be used, and why; the steps that the journal will lack."""
    offset: int
    """Start of its first event in the journal."""


def launch(config: RunConfig, runs_dir: Path, machine: Machine | None = None, about: About | None = None) -> RunDir:
    """Starts a run in processes of its own; returns its directory once the supervisor is up.

    `auto` values are resolved for this machine, inspected if not given; `about` is what the run is called. Raises
    ConfigError if it cannot run the configuration, LaunchError if the directory cannot be written, or the supervisor
    does not start.
    """
    machine = machine or inspect_machine()
    plan = _plan(config, machine)
    run = _make_directory(plan, runs_dir, machine, about or About())
    return _start(run, plan.config)


def start(run: RunDir, lock: int) -> None:
    """Starts a run whose directory is there, from its first step, under its lock. Raises LaunchError."""
    try:
        _start_supervisor(run, journal_end(run.journal), (lock,), str(lock), "")
    except OSError as error:
        raise LaunchError(f"The run's supervisor cannot be started: {error.strerror or error}.") from error


def _start(run: RunDir, config: RunConfig | None = None) -> RunDir:
    try:
        if config is not None and config.launcher == "slurm":
            _start_job(run, config)
        else:
            _start_supervisor(run)
    except SlurmError as error:
        shutil.rmtree(run.path, ignore_errors=True)
        raise LaunchError(f"Slurm takes no job: {error}.") from error
    except OSError as error:
        shutil.rmtree(run.path, ignore_errors=True)
        raise LaunchError(f"The run's supervisor cannot be started: {error.strerror or error}.") from error
    except BaseException:
        shutil.rmtree(run.path, ignore_errors=True)
        raise
    return run


def record(runs_dir: Path, world_size: int) -> RunDir:
    """Starts to record the program that calls this, whose ranks somebody else has started; returns its directory.

    Raises LaunchError if the directory cannot be written, or the supervisor does not start.
    """
    machine = inspect_machine()
    program = sys.argv[0] if sys.argv and sys.argv[0] not in ("", "-c") else "python"
    wanted = os.environ.get(MIRROR_VARIABLE, OFF)
    try:
        fault = mirror_fault(str(OPTIONS["mirror"].check(wanted)))
    except ConfigError as error:
        fault = str(error)
    if fault:
        print(f"tuiapp: {MIRROR_VARIABLE}: {fault}", file=sys.stderr)
    config = RunConfig(
        mirror=OFF if fault else place_mirror(wanted),
        backend="script",
        script=os.path.abspath(program) if os.path.exists(program) else program,
        arguments=shlex.join(sys.argv[1:]),
        python=sys.executable,
        working_directory=_working_directory() or "/",
        platform="cuda" if machine.gpus else "cpu",
        devices=world_size,
    )
    plan = Plan(config=config, facts=None, processes=0, steps_per_epoch=0, total_steps=0)
    return _start(_make_directory(plan, runs_dir, machine, About()))


def resume(
    run: RunDir, config: RunConfig | None = None, machine: Machine | None = None, lock: int | None = None
) -> Resumed:
    """Resumes a run that has ended, or was lost, from its newest complete checkpoint that the journal covers.

    If the journal covers none, from the one that leaves the smallest gap in it, which the notes name. The supervisor is
    up when this returns; in Slurm's queue the run's job is. `config`, with more epochs or other devices, replaces
    run.toml. `lock` is the descriptor that holds the run's lock, if the caller has taken it.

    Raises:
        ConfigError: This machine cannot run it, or run.toml cannot be read.
        LaunchError: It runs already, has nothing left to do, has no checkpoint that fits, or does not start.
    """
    running = f"{run.run_id} is running. To watch it: tuiapp attach {run.run_id}"
    if lock is None and run.is_live():
        raise LaunchError(running)
    if reason := read_only_reason(run) or unreadable_reason(run):
        raise LaunchError(f"{run.run_id} cannot be resumed: {reason}.")
    status = summarise(run).status
    try:
        lock = run.take_lock() if lock is None else os.dup(lock)
    except BlockingIOError:
        # Somebody else resumed it a moment ago.
        raise LaunchError(running) from None
    except OSError as error:
        raise LaunchError(f"Cannot write the run directory {run.path}: {error.strerror}.") from error
    try:
        return _resume(run, lock, status, config, machine)
    finally:
        # The supervisor has the lock now.
        os.close(lock)


def _resume(run: RunDir, lock: int, status: str, config: RunConfig | None, machine: Machine | None) -> Resumed:
    try:
        before = _config_text(run)
        launched = read_config(run)
        plan = _plan(config or launched, machine or inspect_machine())
        if not (BACKENDS[launched.backend].builtin and BACKENDS[plan.config.backend].builtin):
            if launched.backend != plan.config.backend:
                raise CheckpointError(f"it is a run of backend {launched.backend}: start a new run for another")
            return _restart(run, lock, status, plan, before)
        config, data = plan.config, plan.data
        found, problems = list_checkpoints(run.checkpoints)
        point, notes = first_usable(resume_points(run.journal, found), problems, config, data.classes)
        checkpoint, step = point.checkpoint, point.step
        if (was := checkpoint.manifest.input_shape) != data.input_shape:
            raise CheckpointError(
                f"its images were {list(was)}, those of {config.dataset} are {list(data.input_shape)}"
            )
    except CheckpointError as error:
        raise LaunchError(f"{run.run_id} cannot be resumed: {error}.") from error
    except OSError as error:
        raise LaunchError(f"Cannot read {run.config}: {error.strerror}.") from error
    if not has_more(step, plan.total_steps, status):
        limited = step == config.max_steps
        more = f"max_steps={2 * config.max_steps}" if limited else f"epochs={2 * config.epochs}"
        more = f"tuiapp run --resume {run.run_id} --set {more}"
        raise LaunchError(f"{run.run_id} has finished its {plan.total_steps:,} steps. To train further: {more}")
    newer = [one.path.name for one in found if one.manifest.step > step and one.manifest.finite]
    if newer and point.covered and not notes:
        notes = [f"{newer[0]} is newer than the run's journal"]
    if checkpoint.manifest.data_checksum != data.checksum:
        notes = [*notes, f"the arrays of {config.dataset} have changed since it was saved"]
    notes = [f"{note}; resuming from {checkpoint.path.name}" for note in [*notes, *_changed_code(run, config)]]
    # Views find missing steps on their own: they are not written into the journal.
    gap = [] if point.covered else [_what_lacks(run, point)]
    attempt, offset = _start_attempt(run, plan, before, lock, checkpoint.path.name, *notes)
    return Resumed(attempt, step, [*notes, *gap], offset)


def _restart(run: RunDir, lock: int, status: str, plan: Plan, before: bytes) -> Resumed:
    """Starts a script again, which loads what it has saved itself."""
    if status == "completed":
        raise LaunchError(f"{run.run_id} is complete. To run the script anew: tuiapp run --like {run.run_id}")
    with contextlib.suppress(OSError):
        # A full disk does not keep it from starting again.
        _keep_code(run, plan.config, last_attempt(run) + 1)
    attempt, offset = _start_attempt(run, plan, before, lock, "")
    return Resumed(attempt, 0, [], offset)


def _start_attempt(run: RunDir, plan: Plan, before: bytes, lock: int, *resumed: str) -> tuple[int, int]:
    """Starts the supervisor of a further attempt; returns its number, and its first event's offset in the journal.

    `before` is the text of run.toml, restored if it does not start; `resumed` the supervisor's arguments after the
    lock.
    """
    try:
        for directory in _directories(run, plan):
            directory.mkdir(mode=0o700, exist_ok=True)
        # Commands to an attempt that ended before it read them are not for this one.
        mailbox.take(run.commands)
        write_notification_config(run, read_settings()[0])
        # Before run.toml, which alone a later resume reads.
        write_plan(run.plan, plan)
        _rewrite(run.config, to_toml(plan.config).encode())
        try:
            offset = journal_end(run.journal)
            if plan.config.launcher == "slurm" and not slurm.inside_allocation():
                _start_job(run, plan.config, lock)
                return last_attempt(run) + 1, offset
            return _start_supervisor(run, offset, (lock,), str(lock), *resumed).attempt, offset
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


def _plan(config: RunConfig, machine: Machine) -> Plan:
    """Places a configuration, checks what is installed and the data, and makes the plan."""
    # Refused before anything starts, like any wrong setting.
    telemetry_interval_s()
    hang_limit_s()
    interpreter = find_interpreter(config.backend, config.python)
    backend, installed = BACKENDS[config.backend], _look(config, interpreter)
    config = without_idle(place(config, machine))
    _make_mirror_directory(config)
    if not backend.builtin:
        return make_plan(config, python=interpreter.python)
    if config.platform == "cuda" and (reason := backend.without_gpus(installed)):
        message = f"{config.backend} cannot use this machine's GPUs: {reason}; or use platform cpu."
        raise ConfigError([Problem("platform", message)])
    try:
        check_images(config.dataset)
        if not config.dataset.startswith(EXAMINED):
            data = find_dataset(config.dataset)
        else:
            data = examine(config, interpreter.python)
            if problems := [*check_facts(config, data), *check_data_fits(config, machine, data)]:
                raise ConfigError(problems)
    except DatasetError as error:
        raise ConfigError([Problem("dataset", str(error))]) from None
    except UserCodeError as error:
        raise LaunchError(f"{config.dataset} failed:\n{error}") from None
    streamed = wants_streaming(config, data, machine)
    return make_plan(config, data, streamed=streamed, python=interpreter.python)


def _look(config: RunConfig, interpreter: Interpreter) -> Installed:
    """What the ranks' interpreter has; a program that a script names may be none, and is then not asked."""
    named = os.path.basename(interpreter.python).startswith(("python", "pypy"))
    asked = BACKENDS[config.backend].builtin or named
    return interpreter.look() if asked and find_program(interpreter.python) else Installed(interpreter.python)


def _make_mirror_directory(config: RunConfig) -> None:
    if (directory := mirror_directory(config.mirror)) is not None:
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"{directory} cannot be made: {error.strerror or error}; name another directory."
            raise ConfigError([Problem("mirror", message)]) from None


def _code_copies(run: RunDir, config: RunConfig) -> dict[Path, Path]:
    """The user's own files → their copies in the run's directory; of two of one name the second gets a number."""
    copies: dict[Path, Path] = {}
    for file in files_of(config.model, config.dataset):
        twin = run.code / file.name in copies.values()
        copies[file] = run.code / (f"{file.stem}-2.py" if twin else file.name)
    return copies


def _changed_code(run: RunDir, config: RunConfig) -> list[str]:
    changed = []
    for file, copy in _code_copies(run, config).items():
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


def _directories(run: RunDir, plan: Plan) -> list[Path]:
    # One by one: with parents=True the mode would not apply to the directories between.
    return [run.commands, run.rank(0).parent, *map(run.rank, plan.ranks)]


def _make_directory(plan: Plan, runs_dir: Path, machine: Machine, about: About) -> RunDir:
    try:
        make_private(runs_dir)
        run = make_run_dir(runs_dir.absolute(), plan.config.backend, subject(plan.config))
    except OSError as error:
        raise LaunchError(
            f"Cannot create a run directory in {runs_dir}: {error.strerror}. "
            f"Choose another place with --runs-dir or TUIAPP_RUNS_DIR."
        ) from error
    try:
        for directory in _directories(run, plan):
            directory.mkdir(mode=0o700)
        write_atomically(run.config, to_toml(plan.config).encode())
        write_plan(run.plan, plan)
        if about != About():
            write_about(run, about)
        environment = json.dumps(_describe_environment(plan, machine), indent=2)
        write_atomically(run.environment, environment.encode() + b"\n")
        _keep_code(run, plan.config)
        write_notification_config(run, read_settings()[0])
        for file, copy in _code_copies(run, plan.config).items():
            copy.parent.mkdir(mode=0o700, exist_ok=True)
            write_atomically(copy, read_text(file).encode())
    except BaseException as error:
        # Ctrl-C, too.
        shutil.rmtree(run.path, ignore_errors=True)
        if isinstance(error, UserCodeError):
            raise LaunchError(str(error)) from error
        if isinstance(error, OSError):
            raise LaunchError(f"Cannot write the run directory {run.path}: {error.strerror}.") from error
        raise
    return run


def _keep_code(run: RunDir, config: RunConfig, attempt: int = 1) -> None:
    """Copies a script for the record; for a later attempt only if it has changed since the first."""
    if BACKENDS[config.backend].builtin or not (code := read_code(config)):
        return
    name, text = code
    if attempt > 1:
        with contextlib.suppress(OSError):
            if (run.code / name).read_bytes() == text:
                return
        name = f"attempt-{attempt}-{name}"
    run.code.mkdir(mode=0o700, exist_ok=True)
    write_atomically(run.code / name, text)


def _start_supervisor(run: RunDir, offset: int = 0, passed: Sequence[int] = (), *resumed: str) -> RunStarted:
    """Starts the supervisor and waits for its first event, at `offset` of the journal.

    `passed` are descriptors to inherit, `resumed` its arguments beyond the directory.
    """
    process = None
    try:
        command = ["trainers.runtime.supervisor", str(run.path), *resumed]
        process, said_before = _start_process(run, command, passed)
        started = _wait_for_start(run, offset, process, said_before)
    except BaseException:
        # Ctrl-C, too: a run that nobody knows of must not train. Its reaper ends what it has started.
        if process is not None:
            process.kill()
            process.wait()
        raise
    # Reaps it if this process still exists when the run ends.
    threading.Thread(target=process.wait, name="reap-supervisor", daemon=True).start()
    return started


def _start_process(run: RunDir, command: list[str], passed: Sequence[int]) -> tuple[subprocess.Popen[bytes], int]:
    """Starts one of our modules in its own session; returns it, and the length that supervisor.log had."""
    with open(os.open(run.supervisor_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
        said_before = log.tell()
        process = subprocess.Popen(
            # -P: the user's working directory must not be searched for a package called `trainers`.
            [sys.executable, "-P", "-m", *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=passed,
            start_new_session=True,
            # Nothing starts from a directory that was removed.
            cwd=None if _working_directory() else "/",
        )
    return process, said_before


def _start_job(run: RunDir, config: RunConfig, lock: int | None = None) -> None:
    """Submits a run's job to Slurm, and starts the process that waits for it; in an allocation, the job itself."""
    command = [sys.executable, "-P", "-m", "trainers.slurm_job", str(run.path)]
    if slurm.inside_allocation():
        # `salloc` gives its shell on the machine where it was typed.
        elsewhere = "SLURMD_NODENAME" not in os.environ
        command = [*(["srun", "--nodes=1", "--ntasks=1", "--overlap"] if elsewhere else []), *command]
        log = os.open(run.supervisor_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with open(log, "ab") as file:
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True)
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
    _start_process(run, ["trainers.runtime.slurm_queue", str(run.path), job, str(lock)], (lock,))


def _wait_for_start(run: RunDir, offset: int, process: subprocess.Popen[bytes], said_before: int) -> RunStarted:
    deadline = time.monotonic() + START_TIMEOUT_S
    reader = JournalReader(run.journal, offset)
    # It is written once the supervisor has the lock.
    while not (begun := [event for event in reader.read() if isinstance(event, RunStarted)]):
        if process.poll() is not None or time.monotonic() > deadline:
            said = read_end(run.supervisor_log, said_before, 8000).strip()[-2000:]
            code = process.returncode
            why = f"within {START_TIMEOUT_S:.0f} s" if code is None else f"(exit code {code})"
            raise LaunchError(f"The run's supervisor did not start {why}.\n{said}")
        time.sleep(0.005)
    return begun[0]


def _working_directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


def _describe_environment(plan: Plan, machine: Machine) -> dict[str, object]:
    config, ranks = plan.config, _look(plan.config, find_interpreter(plan.config.backend, plan.config.python))
    packages = dict.fromkeys(["numpy", *BACKENDS[config.backend].packages])
    return {
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "interpreter": ranks.python,
        "python": ranks.version or None,
        "versions": {
            "tuiapp": installed_version("tuiapp"),
            **{name: ranks.version_of(name) for name in packages},
        },
        "cpu_cores": machine.cpu_cores,
        "memory_total_bytes": machine.memory_total_bytes,
        "driver": machine.driver,
        "gpus": [{"index": gpu.index, "uuid": gpu.uuid, "name": gpu.name} for gpu in machine.gpus],
        "command_line": sys.argv,
        "working_directory": _working_directory(),
        "git_commit": _git_commit(config.working_directory or None),
    }


def _git_commit(directory: str | None) -> str | None:
    command = ["git", "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=2, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
