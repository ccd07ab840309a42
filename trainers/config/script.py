"""A run of the user's own script: checked against this machine's files, made absolute, turned into a command.

What lies beside a script and hides a module that it needs is named before the start: the script itself would fail far
from the cause.
"""

from __future__ import annotations

import ast
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.options import Problem, suggest
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.config.script_syntax import (
    CONFIG_VARIABLE,
    IN_ARGUMENTS,
    MODULE,
    fill_in,
    named_in_braces,
    program_name,
    read_environment,
    read_texts,
    split_words,
)

MAX_CODE_BYTES = 1 << 20
"""A longer script is not copied into the run's directory."""


def subject(config: RunConfig) -> str:
    """Returns what a run trains: the model's name, or the script's."""
    return config.model if BACKENDS[config.backend].builtin else program_name(config.script)


def data_name(config: RunConfig) -> str:
    """Returns the data set's name; "" for a script, which brings its own data."""
    return config.dataset if BACKENDS[config.backend].builtin else ""


def rank_processes(config: RunConfig) -> int:
    """Returns the rank processes of a placed configuration: one per device, or one a node that owns its devices."""
    is_one_per_device = BACKENDS[config.backend].process_per_device and config.processes == "per-device"
    return config.devices if is_one_per_device else config.nodes


def with_absolute_paths(config: RunConfig) -> RunConfig:
    """Makes an interpreter's and a script's paths absolute, `tensorboard_dir` from the working directory.

    An empty working directory stays empty.
    """
    if os.sep in config.python:
        config = msgspec.structs.replace(config, python=_absolute(config.python))
    if BACKENDS[config.backend].builtin:
        return config
    return msgspec.structs.replace(
        config,
        script=config.script if config.script.startswith(MODULE) else _absolute(config.script),
        working_directory=_absolute(config.working_directory),
        tensorboard_dir=_absolute(config.tensorboard_dir, _absolute(config.working_directory)),
    )


def place_script(config: RunConfig) -> RunConfig:
    """Fixes what depends on where a script is launched: its paths and working directory."""
    if BACKENDS[config.backend].builtin:
        return config
    return with_absolute_paths(
        msgspec.structs.replace(config, working_directory=config.working_directory or os.getcwd())
    )


def check_script(config: RunConfig) -> list[Problem]:
    """Returns problems of the files that a script's configuration names."""
    problems = []
    if config.script and not config.script.startswith(MODULE) and (why := _why_no_script(config.script)):
        problems.append(Problem("script", why))
    directory = _absolute(config.working_directory)
    if not directory:
        try:
            os.getcwd()
        except OSError:
            problems.append(Problem("working_directory", "the present directory was removed; name another one."))
    elif not os.path.isdir(directory):
        is_file = os.path.exists(directory)
        why = "is not a directory." if is_file else f"does not exist.{_nearest(directory, os.path.isdir)}"
        problems.append(Problem("working_directory", f"{directory!r} {why}"))
    elif not os.access(directory, os.X_OK):
        problems.append(Problem("working_directory", f"{directory!r} cannot be entered: Permission denied."))
    return problems


def command(config: RunConfig, python: str) -> list[str]:
    """Returns the command of every rank of a placed configuration, in an interpreter."""
    named = config.script.startswith(MODULE)
    program = ["-m", config.script.removeprefix(MODULE)] if named else [config.script]
    return [python, "-u", *program, *_arguments(config)]


def short_command(config: RunConfig) -> str:
    """Returns the command as a person types it, without directories."""
    named = config.script.startswith(MODULE)
    program = ["-m", program_name(config.script)] if named else [program_name(config.script)]
    interpreter = os.path.basename(config.python) or "python"
    return shlex.join([interpreter, *program, *_arguments(config)])


def _arguments(config: RunConfig) -> list[str]:
    values = read_texts(config.values)
    return [fill_in(word, values) for word in split_words(config.arguments)]


def variables(config: RunConfig) -> dict[str, str]:
    """Returns the environment variables that a configuration gives its script."""
    texts = read_texts(config.values)
    values = {f"{CONFIG_VARIABLE}{name}": value for name, value in texts.items()}
    if named := [name for name in named_in_braces(config.arguments) if name in texts]:
        values[IN_ARGUMENTS] = " ".join(named)
    return {**values, **read_environment(config.environment)}


def read_code(config: RunConfig) -> tuple[str, bytes] | None:
    """Returns name and text of a placed configuration's script; None if it cannot be read or is too long."""
    path = Path(config.script)
    if config.script.startswith(MODULE):
        module_path = Path(config.working_directory, *config.script.removeprefix(MODULE).split("."))
        path = module_path / "__main__.py" if os.path.isdir(module_path) else module_path.with_suffix(".py")
    try:
        with path.open("rb") as file:
            text = file.read(MAX_CODE_BYTES + 1)
    except OSError:
        return None
    return (path.name, text) if len(text) <= MAX_CODE_BYTES else None


def imported(code: bytes) -> list[str]:
    """Returns the top-level names of what a script imports, in its order; none if it is no Python."""
    try:
        nodes = [*ast.walk(ast.parse(code))]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    return list(dict.fromkeys(name.partition(".")[0] for name in names))


def _absolute(path: str, start: str = "") -> str:
    if not path:
        return ""
    return os.path.abspath(os.path.join(start, os.path.expanduser(path)))


def _why_no_script(script: str) -> str:
    path = _absolute(script)
    if os.path.isdir(path):
        return f"{path!r} is a directory; name the script in it, or module:NAME."
    if not os.path.exists(path):
        return f"there is no file {path!r}.{_nearest(path, os.path.isfile)}"
    if not os.path.isfile(path):
        return f"{path!r} is not a regular file."
    return "" if os.access(path, os.R_OK) else f"{path!r} cannot be read: Permission denied."


def _nearest(path: str, fits: Callable[[str], bool]) -> str:
    directory, name = os.path.split(path)
    try:
        names = [file for file in os.listdir(directory) if file.isprintable() and fits(os.path.join(directory, file))]
    except OSError:
        return ""
    return suggest(name, names)


_ALL_USE = (
    "array ast bisect collections contextlib dataclasses datetime decimal dis enum functools heapq importlib inspect "
    "json keyword math numbers operator pathlib platform random re select selectors socket string struct subprocess "
    "threading token tokenize traceback types typing urllib warnings weakref zipfile "
)
USED_BY = {
    "torch": _ALL_USE
    + "asyncio base64 concurrent copy email glob http linecache logging multiprocessing pickle pprint "
    "queue signal ssl tempfile textwrap timeit unittest",
    "jax": _ALL_USE + "asyncio base64 cmd concurrent email glob hmac html http logging secrets ssl textwrap unittest",
    "tuiapp": _ALL_USE + "difflib hashlib shlex shutil signal tempfile tomllib uuid",
}
"""Package → modules of the standard library without which it cannot be imported, or cannot report."""

_ANSWER_S = 60.0


def check_hidden(config: RunConfig, python: str) -> list[Problem]:
    """Returns problems of what lies beside a placed script, which `python` runs, and hides what the script needs."""
    code, environment = read_code(config), {**os.environ, **variables(config)}
    if code is None or environment.get("PYTHONSAFEPATH"):
        return []
    named = config.script.startswith(MODULE)
    directory = config.working_directory if named else os.path.dirname(os.path.realpath(config.script))
    packages = [package for package in imported(code[1]) if package in USED_BY]
    used_by = {name: package for package in reversed(packages) for name in USED_BY[package].split()}
    beside = {name: file for name in sorted(used_by) if (file := _module_in(directory, name))}
    safe = _out_of_reach(python, environment) if beside else set()
    problems = [
        Problem("script", f"{file} hides Python's own module {name}, which {used_by[name]} needs: rename it.")
        for name, file in beside.items()
        if name not in safe
    ]
    # A copy of ours hides nothing.
    ours = os.path.exists(os.path.join(directory, "tuiapp", "trainers"))
    if "tuiapp" in packages and not ours and (file := _module_in(directory, "tuiapp")):
        problems.append(Problem("script", f"{file} hides the package tuiapp, which the script imports: rename it."))
    return problems


def _module_in(directory: str, name: str) -> str:
    """Returns the file that `import NAME` finds in a directory; "" for none."""
    files = os.path.join(directory, name, "__init__.py"), os.path.join(directory, f"{name}.py")
    return next((file for file in files if os.path.isfile(file)), "")


def _out_of_reach(python: str, environment: Mapping[str, str]) -> set[str]:
    """Returns what an interpreter has built in, or loads before a script; all modules, if it cannot be asked."""
    command = [python, "-c", "import sys; print(*sys.builtin_module_names, *sys.modules)"]
    try:
        done = subprocess.run(
            command, env=environment, cwd="/", capture_output=True, text=True, timeout=_ANSWER_S, check=True
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return {*sys.stdlib_module_names}
    return {*done.stdout.split()}
