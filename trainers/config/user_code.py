"""The user's own Python: `py:FILE:NAME`, checked as text; nothing here imports or executes it."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from tuiapp.trainers.config.files import read_limited
from tuiapp.trainers.config.options import suggest

PY = "py:"

MAX_FILE_BYTES = 1 << 20


class UserCodeError(Exception):
    """The user's own code cannot be used; the message is for the user, whose code it is."""


class UserCode(NamedTuple):
    file: Path
    """Absolute."""
    name: str

    def __str__(self) -> str:
        return f"{PY}{self.file}:{self.name}"


def parse(value: str) -> UserCode:
    """Splits `py:FILE:NAME`, FILE resolved against the working directory; raises UserCodeError if it has no NAME."""
    file, colon, name = value.removeprefix(PY).rpartition(":")
    if not colon or not file or not name.isidentifier():
        hint = suggest_name(value.removeprefix(PY)) if not colon else ""
        raise UserCodeError(f"{value!r} is not allowed; it must be py:FILE:NAME, such as py:net.py:Net.{hint}")
    return UserCode(Path(os.path.expanduser(file)).absolute(), name)


def check(value: str) -> UserCode:
    """Finds NAME at the top level of FILE; raises UserCodeError if FILE cannot be read or does not define it."""
    code = parse(value)
    names = read_names(code.file)
    if code.name not in names and "*" not in names:
        defined = f"; it defines {', '.join(names[:12])}" if names else ""
        raise UserCodeError(f"{code.file} defines no {code.name}{defined}.{suggest(code.name, names)}")
    return code


def read_names(file: Path) -> tuple[str, ...]:
    """Returns the names that a file defines at its top level, "*" for a star import; raises UserCodeError."""
    try:
        status = file.stat()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise UserCodeError(f"{file} cannot be read: {why}.{_suggest_file(file)}") from error
    return _read_names(file, status.st_mtime_ns, status.st_size)


def has_function(value: str, name: str) -> bool:
    """Returns whether the file of a value that `check` has passed says `def NAME` at its top level."""
    tree = ast.parse(read_text(parse(value).file))
    return any(isinstance(statement, ast.FunctionDef) and statement.name == name for statement in tree.body)


def read_text(file: Path) -> str:
    """Returns the text of a file of the user's; raises UserCodeError if it cannot be read."""
    try:
        # A link to it is followed: it is the user's own.
        return read_limited(file.resolve(), MAX_FILE_BYTES)
    except OSError as error:
        raise UserCodeError(f"{file} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise UserCodeError(f"{file} {error}; it must be Python source text.") from error


def suggest_name(file: str) -> str:
    """The sentence " Did you mean …?" with the only name, or the first one, that a file without a NAME defines."""
    try:
        names = read_names(Path(os.path.expanduser(file)).absolute())
    except UserCodeError:
        return ""
    return f" Did you mean {f'{PY}{file}:{names[-1]}'!r}?" if names else ""


def files_of(*values: str) -> list[Path]:
    """Returns the files of configuration values, without those that name none."""
    return list(dict.fromkeys(parse(value).file for value in values if value.startswith(PY)))


def slug(value: str) -> str:
    """Returns a model or script in a directory's name: "py-mynet" for `py:net.py:MyNet`, "train" for `train.py`."""
    subject = f"py-{parse(value).name}" if value.startswith(PY) else value.removesuffix(".py")
    return re.sub(r"[^a-z0-9]+", "-", subject.lower())[:40].strip("-") or "run"


@lru_cache(maxsize=64)
def _read_names(file: Path, _mtime_ns: int, _size: int) -> tuple[str, ...]:
    try:
        tree = ast.parse(read_text(file), str(file))
    except SyntaxError as error:
        raise UserCodeError(f"{file}, line {error.lineno}, is not valid Python: {error.msg}.") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise UserCodeError(f"{file} is not valid Python: {error}.") from error
    return tuple(dict.fromkeys(_defined(tree.body)))


def _defined(body: list[ast.stmt]) -> Iterator[str]:
    for statement in body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                yield from (alias.asname or alias.name.partition(".")[0] for alias in aliases)
            case ast.Assign() | ast.AnnAssign(value=ast.expr()) | ast.AugAssign():
                for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                    yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))
            case _:
                # What `if`, `try`, `with` and loops define is defined at the top level too.
                for field in ("body", "orelse", "finalbody"):
                    yield from _defined(getattr(statement, field, []))
                for handler in getattr(statement, "handlers", []):
                    yield from _defined(handler.body)


def _suggest_file(file: Path) -> str:
    try:
        names = [path.name for path in file.parent.iterdir() if path.suffix == ".py"]
    except (OSError, ValueError):
        return ""
    return suggest(file.name, names)
