"""Which interpreter runs a backend's ranks.

The first of: the key `python`; the settings' table [environments], by the backend's name, then by its framework's; the
environment that `tuiapp env create` has made for the framework; the interpreter that runs tuiapp.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tuiapp.trainers.config.catalog import BACKENDS, PACKAGES
from tuiapp.trainers.config.files import user_data
from tuiapp.trainers.config.installed import Installed, inspect_packages, known
from tuiapp.trainers.config.settings import read_settings, settings_path

COMPLETE = "complete"
"""A file in an environment of `tuiapp env create`, written when all of it is there."""


class Interpreter(NamedTuple):
    python: str
    """The interpreter's absolute path, links unresolved: a virtual environment is known by them. As given if it is not
    there.
    """
    origin: str
    """What names it: "python" (the key), "settings", "created", or "own"."""
    advice: str = "install tuiapp again"
    """What to do if it does not run."""

    @property
    def key(self) -> str:
        """The configuration key that its faults are reported for."""
        return "python" if self.origin == "python" else "backend"

    @property
    def known(self) -> Installed | None:
        """What it has, if that is known without asking it."""
        return known(self.python, PACKAGES)

    def inspect(self) -> Installed:
        """Returns what the interpreter has; asks it if that is not known."""
        return inspect_packages(self.python, PACKAGES)


def find_interpreter(backend: str, python: str = "", named: Mapping[str, str] | None = None) -> Interpreter:
    """Returns the interpreter of a backend's ranks; `named` is the settings' [environments], read if not given."""
    if python:
        return Interpreter(find_program(python) or python, "python", f"leave it empty for {sys.executable}")
    framework = BACKENDS[backend].framework
    named = read_settings()[0].environments if named is None else named
    if name := next((name for name in (backend, framework) if name in named), ""):
        program = find_program(named[name]) or named[name]
        return Interpreter(program, "settings", f"change [environments] {name} in {settings_path()}")
    if framework and os.path.exists(environments_dir() / framework / COMPLETE):
        created = environments_dir() / framework / "bin" / "python"
        return Interpreter(str(created), "created", f"make it again: tuiapp env remove {framework}")
    return Interpreter(sys.executable, "own")


def find_interpreters() -> dict[str, Interpreter]:
    """Returns the interpreter of every backend's ranks, unless a configuration has the key `python`."""
    named = read_settings()[0].environments
    return {backend: find_interpreter(backend, named=named) for backend in BACKENDS}


def why_not(backend: str, interpreter: Interpreter) -> str:
    """Returns why a backend's ranks cannot run in an interpreter; "" if they can, or it was never asked what it has."""
    if interpreter.origin != "own" and not find_program(interpreter.python):
        gone = os.sep in interpreter.python and not os.path.exists(interpreter.python)
        why = "does not exist" if gone else "is not an executable program"
        return f"{interpreter.python!r} {why}; {interpreter.advice}."
    if not BACKENDS[backend].builtin or (installed := interpreter.known) is None:
        return ""
    if installed.problem:
        return f"{interpreter.python!r} does not run: {installed.problem}; {interpreter.advice}."
    return BACKENDS[backend].unavailable(installed)


def environments_dir() -> Path:
    """Returns where `tuiapp env create` makes environments: a directory each, of the framework's name."""
    return user_data() / "environments"


def find_program(name: str) -> str:
    """Returns the absolute path of a program, found as a shell finds it; "" for none."""
    path = os.path.abspath(os.path.expanduser(name)) if os.sep in name or name.startswith("~") else name
    program = shutil.which(path)
    return os.path.abspath(program) if program else ""
