"""Executes the user's own Python, `py:FILE:NAME`: in the ranks, and in the process that examines a data set."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType

from tuiapp.trainers.config.mesh import Rules
from tuiapp.trainers.config.user_code import UserCodeError, parse


def mesh_rules(value: str) -> Rules | None:
    """Returns what NAME of FILE has as `mesh_rules`, None if nothing; raises UserCodeError if these are no rules."""
    code = parse(value)
    rules: Rules | None = getattr(getattr(load(code.file), code.name, None), "mesh_rules", None)
    if rules is None:
        return None
    sound = isinstance(rules, Mapping) and all(
        isinstance(pattern, str) and (axis is None or (isinstance(axis, int) and not isinstance(axis, bool)))
        for pattern, axis in rules.items()
    )
    if not sound:
        wanted = 'a regular expression of weights\' names → the axis to split, or None, such as {"kernel$": -1}'
        raise UserCodeError(f"mesh_rules of {value} is {str(rules)[:100]!r}; it must be {wanted}.")
    for pattern in rules:
        try:
            re.compile(pattern)
        except re.error as error:
            raise UserCodeError(
                f"mesh_rules of {value}: {pattern[:100]!r} is no regular expression: {error}."
            ) from None
    return rules


def call(value: str, *arguments: object) -> object:
    """Calls NAME of FILE; raises what the user's code raises, UserCodeError if NAME is missing or no callable."""
    code = parse(value)
    module = load(code.file)
    if not hasattr(module, code.name):
        raise UserCodeError(f"{code.file} defines no {code.name}.")
    function = getattr(module, code.name)
    if not callable(function):
        raise UserCodeError(f"{code.name} in {code.file} is a {type(function).__name__}; it must be callable.")
    result: object = function(*arguments)
    return result


def load(file: Path) -> ModuleType:
    """Imports a file by its path, once a process, as the module `user_<stem>`."""
    name = f"user_{file.stem}"
    if (loaded := sys.modules.get(name)) and loaded.__file__ == str(file):
        return loaded
    if loaded:
        name = f"{name}_2"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise UserCodeError(f"{file} cannot be imported; its name must end with .py.")
    # Modules beside it can be imported, as from a script; last, so that none hides an installed one.
    if (directory := str(file.parent)) not in sys.path:
        sys.path.append(directory)
        # Where PYTHONPATH names our own tree, what lies in it beside `tuiapp` must not hide the user's.
        tree = Path(__file__).parents[3]
        if str(tree) in sys.path and os.path.exists(tree / "pyproject.toml"):
            sys.path.remove(str(tree))
            sys.path.append(str(tree))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def format_error(error: BaseException, files: Iterable[Path]) -> str:
    """Returns an exception's traceback, beginning with the first frame in one of the user's files, if there is one."""
    paths, frame = {str(file) for file in files}, error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename not in paths:
        frame = frame.tb_next
    return "".join(traceback.format_exception(type(error), error, frame or error.__traceback__))
