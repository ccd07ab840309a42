"""What a script's run is said to have failed of, when something else than the cause is seen last or first."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.kit.harness import launched
from tuiapp.trainers.config.run_config import RunConfig

pytestmark = pytest.mark.nightly

RAISES = "raise ValueError('bad shard 3')"


def reason(directory: Path, runs_dir: Path, text: str, **keys: object) -> str:
    """Why the run of a short script failed."""
    path = directory / "train.py"
    path.write_text(dedent(text))
    known: dict[str, object] = {"platform": "cpu", "devices": 1, "working_directory": str(directory)}
    config = RunConfig(backend="script", script=str(path), **{**known, **keys})  # type: ignore[arg-type]
    with launched(config, runs_dir) as run:
        end = run.end()
        assert end.status == "failed"
        return end.reason


def test_a_signal_after_an_exception(tmp_path: Path, runs_dir: Path) -> None:
    end = "import atexit, os, signal\natexit.register(lambda: os.kill(os.getpid(), signal.SIGABRT))\n"
    said = reason(tmp_path, runs_dir, end + RAISES)
    assert said == "rank 0 failed: ValueError: bad shard 3; SIGABRT ended it afterwards"


CAUGHT = """
    import os, signal, time, traceback
    try:
        1 / 0
    except ZeroDivisionError:
        traceback.print_exc()
    for step in range(20):
        print("step", step, end="\\r", flush=True)
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_signal_long_after_an_exception_that_was_caught(tmp_path: Path, runs_dir: Path) -> None:
    assert reason(tmp_path, runs_dir, CAUGHT).startswith("rank 0 was killed by SIGKILL — ")


GLOO = """
    import os, sys, time, traceback, torch, torch.distributed as dist
    from datetime import timedelta
    dist.init_process_group("gloo", timeout=timedelta(seconds=4))
    rank = dist.get_rank()
    dist.all_reduce(torch.ones(1))
    if rank == 0:
        dist.all_reduce(torch.ones(1))
    {}
"""


def test_a_rank_that_cleans_up_while_another_times_out(tmp_path: Path, runs_dir: Path) -> None:
    clean = "try: {}['text']\n    except KeyError: traceback.print_exc(); print('cleaning up'); time.sleep(60)"
    said = reason(tmp_path, runs_dir, GLOO.replace("{}", clean), devices=2)
    assert said == "rank 1 failed: KeyError: 'text'; SIGTERM ended it afterwards"


def test_a_rank_that_ends_while_another_waits_for_it(tmp_path: Path, runs_dir: Path) -> None:
    said = reason(tmp_path, runs_dir, GLOO.format("os._exit(0)"), devices=2)
    assert said.startswith("rank 1 exited with code 0, while rank 0 waited for it in a collective: RuntimeError: ")


def test_a_run_has_no_keyboard(tmp_path: Path, runs_dir: Path) -> None:
    assert "a run has no keyboard" in reason(tmp_path, runs_dir, "breakpoint()")
