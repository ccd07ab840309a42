"""Runs `tuiapp` commands: as a real process, or in this one where a process would add nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import pytest

from tuiapp.cli import main


@dataclass(frozen=True)
class Done:
    """What came of a command."""

    code: int
    out: str
    err: str


Command: TypeAlias = Callable[..., Done]


def in_process(capsys: pytest.CaptureFixture[str], *arguments: object) -> Done:
    """Run a command here."""
    capsys.readouterr()
    try:
        code = main([str(argument) for argument in arguments])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else -1
    captured = capsys.readouterr()
    return Done(code, captured.out, captured.err)


def as_process(*arguments: object) -> Done:
    """Run a command as `python -m tuiapp`, its output going to pipes."""
    command = [sys.executable, "-m", "tuiapp", *map(str, arguments)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=150, check=False)
    return Done(done.returncode, done.stdout, done.stderr)
