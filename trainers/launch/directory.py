"""Makes a run's directory, with all that is known before it starts."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.files import make_private, replace_unsynced, write_atomically
from tuiapp.trainers.config.installed import installed_version
from tuiapp.trainers.config.interpreters import find_interpreter
from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.config.plan import Plan, write_plan
from tuiapp.trainers.config.run_config import RunConfig, to_toml
from tuiapp.trainers.config.script import imported, read_code, subject
from tuiapp.trainers.config.settings import read_settings
from tuiapp.trainers.config.user_code import UserCodeError, files_of, read_text
from tuiapp.trainers.contract.lines import encode_json
from tuiapp.trainers.contract.lock import is_held, take
from tuiapp.trainers.contract.rundir import RunDir, make_run_dir
from tuiapp.trainers.contract.sidecars import About, write_about, write_notification_config
from tuiapp.trainers.launch.prepare import LaunchError, installed_for

_NEW = ".new-"
MAKING_S = 60.0
"""How long runs that are being made may stand still: what is older has lost its maker."""


def make_directory(plan: Plan, runs_dir: Path, machine: Machine, about: About) -> RunDir:
    """Makes the directory of a new run; leaves nothing behind if it raises LaunchError."""
    return make_directories([(plan, about)], runs_dir, machine)[0]


def make_directories(
    runs: Sequence[tuple[Plan, About]],
    runs_dir: Path,
    machine: Machine,
    complete: Callable[[int, RunDir], None] = lambda number, run: None,
) -> list[RunDir]:
    """Makes the directories of new runs, all or none; each becomes visible when it is whole, by a rename.

    `complete` adds to each, while it is hidden, what else belongs to it. Raises LaunchError.
    """
    made = list[RunDir]()
    described = dict[tuple[str, ...], bytes]()
    try:
        with _hidden_directory(runs_dir) as hidden:
            built = list[RunDir]()
            for number, (plan, about) in enumerate(runs):
                built.append(make_run_dir(hidden, plan.config.backend, subject(plan.config)))
                config = plan.config
                kind = (config.backend, config.python, config.script, config.working_directory)
                if kind not in described:
                    described[kind] = _describe_environment(config, machine)
                _fill(built[-1], plan, about, described[kind])
                complete(number, built[-1])
            for run in built:
                made.append(_publish(run, runs_dir))
    except BaseException as error:
        # Ctrl-C, too.
        for run in made:
            shutil.rmtree(run.path, ignore_errors=True)
        if isinstance(error, UserCodeError):
            raise LaunchError(str(error)) from error
        if isinstance(error, OSError):
            hint = "" if error.errno == errno.E2BIG else " Choose another place with --runs-dir or TUIAPP_RUNS_DIR."
            raise LaunchError(f"Cannot create a run directory in {runs_dir}: {error.strerror}.{hint}") from error
        raise
    return made


def _fill(run: RunDir, plan: Plan, about: About, environment: bytes) -> None:
    config = plan.config
    for directory in directories(run, plan):
        directory.mkdir(mode=0o700)
    replace_unsynced(run.config, to_toml(config).encode())
    write_plan(run.plan, plan)
    if about != About():
        # The run's one sync is that of its place in the queue, or of its journal.
        write_about(run, about, durable=False)
    replace_unsynced(run.environment, environment)
    keep_code(run, config)
    write_notification_config(run, read_settings()[0])
    for file, copy in code_copies(run, config).items():
        copy.parent.mkdir(mode=0o700, exist_ok=True)
        write_atomically(copy, read_text(file).encode())


@contextlib.contextmanager
def _hidden_directory(runs_dir: Path) -> Iterator[Path]:
    """Yields a directory for runs that are being made; removes it, and what others have left that were killed."""
    make_private(runs_dir)
    for left in runs_dir.glob(f"{_NEW}*"):
        with contextlib.suppress(OSError):
            # A maker on another machine may have a lock that this one does not see.
            if time.time() - left.stat().st_mtime > MAKING_S and not is_held(left / "lock"):
                shutil.rmtree(left, ignore_errors=True)
    hidden = Path(tempfile.mkdtemp(prefix=_NEW, dir=runs_dir.absolute()))
    lock = None
    try:
        lock = take(hidden / "lock")
        yield hidden
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _publish(run: RunDir, runs_dir: Path) -> RunDir:
    target = runs_dir.absolute() / run.run_id
    # Two runs that start within one second may have drawn the same digits.
    while os.path.lexists(target):
        target = target.with_name(f"{run.run_id[:-4]}{os.urandom(2).hex()}")
    os.rename(run.path, target)
    return RunDir(target)


def directories(run: RunDir, plan: Plan) -> list[Path]:
    """Returns the directories within a run's own, each after its parent."""
    # One by one: with parents=True the mode would not apply to the directories between.
    return [run.commands, run.rank(0).parent, *map(run.rank, plan.ranks)]


def keep_code(run: RunDir, config: RunConfig, attempt: int = 1) -> None:
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


def code_copies(run: RunDir, config: RunConfig) -> dict[Path, Path]:
    """Returns the user's own files → their copies in the run's directory; the second of a name gets a number."""
    copies: dict[Path, Path] = {}
    for file in files_of(config.model, config.dataset):
        twin = run.code / file.name in copies.values()
        copies[file] = run.code / (f"{file.stem}-2.py" if twin else file.name)
    return copies


def _describe_environment(config: RunConfig, machine: Machine) -> bytes:
    ranks = installed_for(config, find_interpreter(config.backend, config.python))
    packages = dict.fromkeys(["numpy", *BACKENDS[config.backend].packages])
    versions = {name: ranks.version_of(name) for name in packages}
    if not BACKENDS[config.backend].builtin and (code := read_code(config)):
        versions |= {name: version for name in imported(code[1]) if (version := ranks.version_of(name))}
    facts = {
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "interpreter": ranks.python,
        "python": ranks.version or None,
        "versions": {**versions, "tuiapp": installed_version("tuiapp")},
        "cpu_cores": machine.cpu_cores,
        "memory_total_bytes": machine.memory_total_bytes,
        "driver": machine.driver,
        "gpus": [{"index": gpu.index, "uuid": gpu.uuid, "name": gpu.name} for gpu in machine.gpus],
        "command_line": sys.argv,
        "working_directory": working_directory(),
        "git_commit": _git_commit(config.working_directory or None),
    }
    return msgspec.json.format(encode_json(facts)) + b"\n"


def _git_commit(directory: str | None) -> str | None:
    command = ["git", "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=2, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def working_directory() -> str | None:
    """Returns the working directory; None if it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return None
