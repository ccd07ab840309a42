"""A run that is not to be loses its supervisor, and no other run does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from trainers.contract.strays import end_supervisor

SLEEP = "import time; print('up', flush=True); time.sleep(600)"


@contextmanager
def supervisor(directory: Path, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose command line is that of a run's supervisor."""
    command = [sys.executable, "-S", "-c", SLEEP, "-m", "trainers.runtime.supervisor", str(directory), *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        try:
            assert started.stdout.readline() == b"up\n"
            yield started
        finally:
            started.kill()


def test_a_run_whose_directory_begins_with_the_same_letters_is_left_alone(tmp_path: Path) -> None:
    with ExitStack() as stack:
        others = [stack.enter_context(supervisor(tmp_path / name)) for name in ("run2", "run 1", "ru")]
        ours = stack.enter_context(supervisor(tmp_path / "run", "7", "step-00000010"))
        end_supervisor(tmp_path / "run")
        assert ours.wait() == -signal.SIGKILL
        assert [one.poll() for one in others] == [None] * 3


def test_a_directory_whose_name_is_no_utf8(tmp_path: Path) -> None:
    directory = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    with supervisor(directory) as ours:
        end_supervisor(directory)
        assert ours.wait() == -signal.SIGKILL
