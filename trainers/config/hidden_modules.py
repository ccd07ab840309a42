"""Files beside a script that Python imports in the place of its own modules, or of the package tuiapp."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

from tuiapp.trainers.config.options import Problem
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.config.script import imported, read_code, variables
from tuiapp.trainers.config.script_syntax import MODULE

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
    """Problems of what lies beside a placed script, which `python` runs, and hides what the script needs."""
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
    """The file that `import NAME` finds in a directory; "" for none."""
    files = os.path.join(directory, name, "__init__.py"), os.path.join(directory, f"{name}.py")
    return next((file for file in files if os.path.isfile(file)), "")


def _out_of_reach(python: str, environment: Mapping[str, str]) -> set[str]:
    """Modules that an interpreter has built in, or has loaded before it runs a script; all, if it cannot be asked."""
    command = [python, "-c", "import sys; print(*sys.builtin_module_names, *sys.modules)"]
    try:
        done = subprocess.run(
            command, env=environment, cwd="/", capture_output=True, text=True, timeout=_ANSWER_S, check=True
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return {*sys.stdlib_module_names}
    return {*done.stdout.split()}
