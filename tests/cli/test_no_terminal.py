"""The dashboard where there is no terminal: a word that points to what works without one."""

from __future__ import annotations

from pathlib import Path

from tests import histories
from tests.cli.terminal import as_process
from tests.contract.recorded import record


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
