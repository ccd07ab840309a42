"""The dashboard where there is no terminal: a word that points to what works without one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import histories
from tests.kit.command_line import as_process
from tests.kit.recorded import record


def test_tuiapp_into_a_pipe(home: Path) -> None:
    done = as_process()
    assert (done.code, done.out) == (2, "")
    assert done.err == "tuiapp: the dashboard needs a terminal. Without one: tuiapp run quickstart\n"
    assert list(home.iterdir()) == []


def test_attach_into_a_pipe(runs_dir: Path) -> None:
    run = record(runs_dir, histories.RUN_ID, histories.completed())
    done = as_process("attach", "latest")
    assert (done.code, done.out) == (2, "")
    assert done.err == f"tuiapp: the dashboard needs a terminal. Without one: tuiapp show {run.run_id}\n"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        *(("presets >&-", 0), ("presets 2>&-", 0), ("<&-", 2), ("<&- >&- 2>&-", 2), ("show x >&-", 2)),
        # Which can only be read.
        *(("presets 1</dev/null", 1), ("help 1</dev/null", 1)),
    ],
)
def test_streams_that_the_shell_closed(home: Path, command: str, code: int) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} -m tuiapp {command}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("command", ["presets list", "devices"])
def test_output_onto_a_full_disk(home: Path, command: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tuiapp", *command.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=150,
        )
    assert done.returncode == 1
    assert done.stderr == "tuiapp: the output could not be written: No space left on device\n"
