"""The environments that the backends' ranks run in; `tuiapp env create` makes a virtual one for a framework."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import BinaryIO, NamedTuple, TypeAlias

from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.files import bytes_below, make_private, open_own, write_atomically
from tuiapp.trainers.config.installed import Installed
from tuiapp.trainers.config.interpreters import COMPLETE, Interpreter, environments_dir, find_interpreters, why_not
from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.contract.lock import take
from tuiapp.trainers.contract.rundir import RUN_ID

CPU_TORCH = "https://download.pytorch.org/whl/cpu"
"""PyTorch's own index: what PyPI has for x86 is built for CUDA."""

OLDER_CUDA = "https://download.pytorch.org/whl/cu126"
"""The index for drivers and GPUs that today's CUDA no longer knows."""

MEASURE_S = 2.0
POLL_S = 0.1
LAST_BYTES = 4000
END_S = 5.0
"""Seconds from SIGTERM to SIGKILL for an installer."""

# The last ones for Python 3.11 are older than those for Python of today.
_NUMPY, _JAX, _FLAX = ("2.5.5", "0.12.0.1", "0.12.12") if sys.version_info >= (3, 12) else ("2.4.6", "0.10.2", "0.12.8")
_COMMON = (f"numpy=={_NUMPY}", "msgspec==0.22.0")
_TORCH, _KERAS, _FILELOCK = "torch==2.15.0", "keras==3.15.1", "filelock==4.2.12"
_WITH_JAX = (f"flax=={_FLAX}", "optax==0.2.8", _FILELOCK)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Versions that work together."""

    requirements: tuple[str, ...]
    megabytes: tuple[int, int]
    """About what the packages download, and take on the disk, for x86-64."""
    cuda: tuple[str, ...] = ()
    """The packages for NVIDIA's GPUs; empty if there are none for those of today."""
    cuda_megabytes: tuple[int, int] = (0, 0)
    index: str = ""
    """The index that is searched besides the usual one for what runs on CPUs."""
    python: str = ""
    """The only version of Python that the packages run on; "" for that of tuiapp."""

    def made_of(self, *, cuda: bool, older: bool) -> tuple[tuple[str, ...], str]:
        """Returns what is installed, and the index that is searched besides the usual one."""
        if not cuda:
            return self.requirements, self.index
        if not older:
            return self.cuda, ""
        requirements = tuple(requirement.replace("[cuda13]", "[cuda12]") for requirement in self.cuda)
        return requirements, OLDER_CUDA if _TORCH in self.cuda else ""


RECIPES = {
    "torch": Recipe(
        (_TORCH, *_COMMON), (210, 950),
        cuda=(_TORCH, *_COMMON), cuda_megabytes=(2500, 5600), index=CPU_TORCH,
    ),
    "jax": Recipe(
        (f"jax=={_JAX}", *_WITH_JAX, *_COMMON), (170, 760),
        cuda=(f"jax[cuda13]=={_JAX}", *_WITH_JAX, *_COMMON), cuda_megabytes=(2500, 4300),
    ),
    "keras": Recipe(
        (_KERAS, f"jax=={_JAX}", _TORCH, _FILELOCK, *_COMMON), (340, 1600),
        cuda=(_KERAS, f"jax[cuda13]=={_JAX}", _TORCH, _FILELOCK, *_COMMON),
        cuda_megabytes=(3500, 6400), index=CPU_TORCH,
    ),
    # It imports pkg_resources, which later versions of setuptools warn of, or do not have.
    "mxnet": Recipe(
        ("mxnet==1.9.1", "numpy==1.23.5", "setuptools==78.1.1", "msgspec==0.22.0"), (70, 300), python="3.11",
    ),
}  # fmt: skip
"""Framework → what its environment is made of."""

Tell: TypeAlias = Callable[[str, int], None]
"""Takes a line of the installer's, or "" and the bytes that are on the disk by now."""


class CreateError(Exception):
    """An environment was not made or not removed; the message gives the reason and what to do."""


class CancelledError(Exception):
    """The making of an environment was cancelled; nothing is left of it."""


def describe(name: str, *, cuda: bool, older: bool = False) -> str:
    """Says what would be made, what it downloads and takes on the disk; raises CreateError if it cannot be made here.

    `older`: for CUDA 12, where the driver or the GPUs are not for CUDA 13.
    """
    recipe = _recipe(name, cuda=cuda)
    _find_python(name, recipe)
    megabytes = recipe.cuda_megabytes if cuda else recipe.megabytes
    packages = ", ".join(recipe.made_of(cuda=cuda, older=older)[0])
    download, disk = (f"{size / 1000:.1f} GB" if size >= 1000 else f"{size} MB" for size in megabytes)
    return f"{environments_dir() / name}: {packages}. Downloads about {download}, and takes about {disk} on the disk."


def create(
    name: str,
    tell: Tell,
    *,
    cuda: bool = False,
    older: bool = False,
    again: bool = False,
    cancelled: Event | None = None,
) -> Path:
    """Makes the environment of a framework, in place of the one that there is if `again`; returns its directory.

    `cuda` and `older` are as of `describe`. Raises CreateError, or CancelledError once `cancelled` is set; nothing is
    left but the log.
    """
    recipe, cancelled = _recipe(name, cuda=cuda), cancelled or Event()
    python, directory = _find_python(name, recipe), environments_dir() / name
    with _alone(name) as lock:
        if os.path.exists(directory / COMPLETE):
            if not again:
                raise CreateError(f"{directory} is there already. To make it anew: tuiapp env remove {name}")
            _check_not_used(directory)
        try:
            _remove(directory)
            directory.mkdir(mode=0o700)
            with open_own(log_path(name), "wb") as log:
                for command in _commands(recipe.made_of(cuda=cuda, older=older), directory, python):
                    _run(command, directory, log, lock, tell, cancelled)
            _check(name, directory)
            shutil.rmtree(directory / "tmp", ignore_errors=True)
            write_atomically(directory / COMPLETE, b"")
        except BaseException as error:
            # Ctrl-C, too.
            shutil.rmtree(directory, ignore_errors=True)
            if isinstance(error, OSError):
                raise CreateError(f"{directory} cannot be made: {error.strerror or error}.") from error
            raise
    return directory


def remove(name: str) -> Path:
    """Removes an environment; returns its directory. Raises CreateError if there is none, or if it is used."""
    directory = environments_dir() / name
    if name not in RECIPES or not os.path.exists(directory):
        made = [recipe for recipe in RECIPES if os.path.exists(environments_dir() / recipe / COMPLETE)]
        there = ", ".join(made) or "none"
        raise CreateError(f"There is no environment {name!r} in {environments_dir()}; there are: {there}.")
    with _alone(name):
        _check_not_used(directory)
        try:
            _remove(directory)
        except OSError as error:
            raise CreateError(f"{directory} cannot be removed: {error.strerror or error}.") from error
    return directory


def log_path(name: str) -> Path:
    """Returns the file with what the installer printed when an environment was made for the last time."""
    return environments_dir() / f"{name}.log"


def _recipe(name: str, *, cuda: bool) -> Recipe:
    recipe = RECIPES[name]
    if cuda and not recipe.cuda:
        raise CreateError(f"There is no build of {recipe.requirements[0]} for today's GPUs; leave out --cuda.")
    return recipe


def _find_python(name: str, recipe: Recipe) -> str:
    """Returns the interpreter that makes the environment; for uv also a version, which it finds or downloads."""
    running = "{}.{}".format(*sys.version_info)
    if recipe.python in ("", running):
        return sys.executable
    if shutil.which("uv"):
        return recipe.python
    if interpreter := shutil.which(f"python{recipe.python}"):
        return interpreter
    raise CreateError(
        f"{name} needs Python {recipe.python}: {recipe.requirements[1]} does not install on the {running} that runs "
        f"tuiapp. Install python{recipe.python}, with its venv, or uv, which downloads one."
    )


def _commands(made_of: tuple[tuple[str, ...], str], directory: Path, python: str) -> Iterator[list[str]]:
    there = str(directory / "bin" / "python")
    requirements, searched = made_of
    index = ["--extra-index-url", searched] if searched else []
    if uv := shutil.which("uv"):
        # Of all indices the best version, as pip does.
        best = ["--index-strategy", "unsafe-best-match"] if index else []
        yield [uv, "venv", "--seed", "--no-project", "--allow-existing", "--python", python, str(directory)]
        yield [uv, "pip", "install", "--python", there, *index, *best, *requirements]
    else:
        yield [python, "-m", "venv", str(directory)]
        yield [there, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", *index, *requirements]


def _run(command: list[str], directory: Path, log: BinaryIO, lock: int, tell: Tell, cancelled: Event) -> None:
    """Runs an installer to its end; raises CreateError with its last words if it fails."""
    temporary = directory / "tmp"
    temporary.mkdir(mode=0o700, exist_ok=True)
    # PYTHONPATH: what is there would count as installed.
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    with _started(command, {**environment, "TMPDIR": str(temporary)}, lock) as process:
        output, measured, out = b"", 0.0, process.stdout
        assert out is not None
        while True:
            if cancelled.is_set():
                raise CancelledError
            if select.select([out], [], [], POLL_S)[0]:
                part = os.read(out.fileno(), 1 << 16)
                if not part:
                    break
                log.write(part)
                log.flush()
                *lines, _ = (output.rpartition(b"\n")[2] + part).decode(errors="replace").split("\n")
                output = (output + part)[-LAST_BYTES:]
                for line in lines:
                    tell(line.strip(), 0)
            if time.monotonic() - measured > MEASURE_S:
                tell("", bytes_below(directory))
                measured = time.monotonic()
        code = process.wait()
    if code:
        last = [line for line in output.decode(errors="replace").splitlines() if line.strip()][-3:]
        raise CreateError("\n".join([*last, f"{command[0]} failed. All that it said: {log.name}"]))


@contextmanager
def _started(command: list[str], environment: dict[str, str], lock: int) -> Iterator[subprocess.Popen[bytes]]:
    """Starts an installer; ends it if the block is left before it has ended."""
    # Ctrl-C before `Popen` returns would leave a process that nobody ends.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    with ExitStack() as ended:
        ended.callback(signal.pthread_sigmask, signal.SIG_SETMASK, before)
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment,
            # An installer that outlives us holds the lock: nobody makes the same environment beside it.
            pass_fds=(lock,),
            start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None
        ended.callback(process.stdout.close)
        ended.callback(_end, process)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        yield process


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _check(name: str, directory: Path) -> None:
    """Asks the new interpreter whether it has all that the backends of its framework want."""
    interpreter = Interpreter(str(directory / "bin" / "python"), "created", f"see {log_path(name)}")
    for backend in BACKENDS.values():
        if backend.framework == name:
            interpreter.inspect()
            if reason := why_not(backend.name, interpreter):
                raise CreateError(reason)


def _check_not_used(directory: Path) -> None:
    import psutil

    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or [""]
        if command[0].startswith(f"{directory}{os.sep}"):
            runs = [word for word in command if RUN_ID.fullmatch(os.path.basename(word))]
            what = f"run {os.path.basename(runs[0])}" if runs else f"process {process.pid} ({' '.join(command)[:60]})"
            raise CreateError(f"{directory} is in use by {what}; stop it first.")


def _remove(directory: Path) -> None:
    if os.path.islink(directory) or not os.path.isdir(directory):
        directory.unlink(missing_ok=True)
        return
    # First, so that what is left of it if this is interrupted does not count.
    (directory / COMPLETE).unlink(missing_ok=True)
    shutil.rmtree(directory)


@contextmanager
def _alone(name: str) -> Iterator[int]:
    """Holds the lock of an environment; raises CreateError if somebody else does."""
    try:
        make_private(environments_dir())
        lock = take(environments_dir() / f".{name}.lock", 0.0)
    except BlockingIOError:
        raise CreateError(f"Another tuiapp, or what it started, makes or removes the environment {name}.") from None
    except OSError as error:
        raise CreateError(f"{environments_dir()} cannot be written: {error.strerror}.") from error
    try:
        yield lock
    finally:
        os.close(lock)


class Environment(NamedTuple):
    """What a backend's ranks run in."""

    backend: str
    interpreter: Interpreter
    installed: Installed | None
    """What the interpreter has; None if it was never asked."""
    unavailable: str
    """Why ranks cannot run in the interpreter; "" if they can, or if it was never asked."""

    @property
    def versions(self) -> dict[str, str]:
        """The versions of NumPy and of the backend's packages."""
        if self.installed is None or not BACKENDS[self.backend].builtin:
            return {}
        names = (*BACKENDS[self.backend].packages, "numpy")
        return {name: version for name in names if (version := self.installed.version_of(name))}

    def without_gpus(self, machine: Machine) -> str:
        """Says why the backend cannot use GPUs here; "" if it can."""
        if not machine.gpus:
            return machine.gpu_problem
        return self.unavailable or (
            BACKENDS[self.backend].without_gpus(self.installed, machine) if self.installed else ""
        )

    def words(self, machine: Machine | None) -> str:
        """Says in which interpreter ranks run, if not tuiapp's own, what it has, and if it can use the GPUs here."""
        parts = [] if self.interpreter.origin == "own" else [f"in {self.interpreter.python}"]
        if parts and self.installed:
            parts += [f"Python {self.installed.version}", *(f"{name} {of}" for name, of in self.versions.items())]
        if machine and machine.gpus and not self.unavailable and (reason := self.without_gpus(machine)):
            parts.append(f"not on the GPUs: {reason}")
        return ", ".join(parts)


def find_environments() -> list[Environment]:
    """Returns all backends' environments, as far as they are known; starts no process."""
    interpreters = find_interpreters().items()
    return [
        Environment(backend, interpreter, interpreter.known, why_not(backend, interpreter))
        for backend, interpreter in interpreters
    ]


def inspect_environments() -> Sequence[Environment]:
    """Returns all backends' environments; asks the interpreters that are not known, which takes a while."""
    for backend, interpreter in find_interpreters().items():
        if BACKENDS[backend].builtin and not why_not(backend, interpreter):
            interpreter.inspect()
    return find_environments()
