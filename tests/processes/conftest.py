from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.kit import ROOT
from tests.kit.harness import Gate
from tests.kit.leftovers import end_marked
from tests.kit.leftovers import mark as mark
from tests.kit.own_scripts import Start

FAULTS = ROOT / "tests/kit/faults"


@pytest.fixture(autouse=True)
def _leaves_no_process(mark: str) -> None:
    """Not even if an assertion fails midway."""


@pytest.fixture
def runs_dir(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a rank of the runs launched from now on misbehave: `KIND:RANK:STEP`."""

    def set_fault(text: str) -> None:
        monkeypatch.setenv("PYTHONPATH", str(FAULTS), prepend=os.pathsep)
        monkeypatch.setenv("TUIAPP_TEST_FAULT", text)

    return set_fault


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[[str], None]) -> Callable[[int, int], Gate]:
    """Holds up a rank of the runs launched from now on before it starts a step; 0: before anything is loaded."""
    numbers = count(1)

    def set_gate(rank: int, step: int) -> Gate:
        closed = Gate(tmp_path / f"gate-{next(numbers)}")
        fault(f"gate:{rank}:{step}")
        monkeypatch.setenv("TUIAPP_TEST_GATE", str(closed.path))
        return closed

    return set_gate


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Runs launched from now on train with `faults/fake_backend.py` in the place of torch-ddp; takes its seconds."""

    def set_fake(fault: str = "", **seconds: float) -> None:
        monkeypatch.setenv("PYTHONPATH", str(FAULTS), prepend=os.pathsep)
        monkeypatch.setenv("TUIAPP_TEST_BACKEND", "fake")
        if fault:
            monkeypatch.setenv("TUIAPP_TEST_FAULT", fault)
        for name, value in seconds.items():
            monkeypatch.setenv(f"TUIAPP_TEST_{name.upper()}_S", str(value))

    return set_fake


@pytest.fixture
def no_framework(fake: Callable[..., None]) -> None:
    """For tests of what is the same whichever framework trains: ranks that need none."""
    fake()


@pytest.fixture
def start(tmp_path: Path, runs_dir: Path, mark: str) -> Iterator[Start]:
    """Starts a script as a user does; ends it if the test has not, and what it has started."""
    started: list[subprocess.Popen[str]] = []

    def start_script(text: str, *launcher: str, **variables: str) -> subprocess.Popen[str]:
        script = tmp_path / f"train{len(started)}.py"
        script.write_text(textwrap.dedent(text))
        environment = {**os.environ, "TUIAPP_RUNS_DIR": str(runs_dir), "PYTHONPATH": os.getcwd(), **variables}
        process = subprocess.Popen(
            [sys.executable, *launcher, str(script)],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
            start_new_session=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield start_script
    # Ranks of torchrun have sessions of their own, and its pipes.
    end_marked(mark)
    for process in started:
        process.communicate()
