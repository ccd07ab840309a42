"""Ranks, and supervisors, that die, with real torch; `test_process_tree` has the same without a framework."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.kit.harness import GONE_S, MLP, launched, wait_dead
from tests.kit.variants import mostly_by_hand
from tuiapp.trainers.contract.events import RankFailed
from tuiapp.trainers.rank.process import ORPHAN_S
from tuiapp.trainers.state.summary import summarise


@pytest.mark.nightly
@pytest.mark.parametrize("backend", mostly_by_hand(["torch-ddp", "torch-fsdp", "keras-torch"], "torch-ddp"))
@pytest.mark.parametrize("kind", ["raise", "raise-blocked"])
def test_a_rank_that_raises_ends_the_run_with_its_traceback(
    runs_dir: Path, fault: Callable[[str], None], kind: str, backend: str
) -> None:
    fault(f"{kind}:1:20")
    with launched(msgspec.structs.replace(MLP, backend=backend), runs_dir) as run:
        end = run.end()
        assert (end.status, end.failed_rank) == ("failed", 1)
        assert "the test's own failure" in end.reason
        first = next(event for event in run.of(RankFailed) if event.rank == 1)
        assert first.error == "ValueError: the test's own failure"
        assert "sitecustomize.py" in first.traceback
        assert f"trainers/backends/{backend.replace('-', '_')}.py" in first.traceback
        assert first.exit_code == 1
        # All steps before the failure are on record.
        assert run.steps_of(1) == list(range(1, 20))
        run.wait_gone()


@pytest.mark.by_hand
def test_kill_9_of_a_rank_is_named_at_once_and_takes_the_others_along(
    runs_dir: Path, fault: Callable[[str], None]
) -> None:
    fault("deaf:0:1")  # rank 0 ignores SIGTERM
    with launched(MLP, runs_dir) as run:
        run.at_step(50)
        killed = time.monotonic()
        os.kill(run.pid(1), signal.SIGKILL)
        failed = run.wait(RankFailed, lambda event: event.rank == 1)
        named_after = failed.mono - killed
        end = run.end()
        gone_after = time.monotonic() - killed
        run.wait_gone()
        print(f"\nkill -9 of rank 1: named after {named_after:.2f} s, all ranks gone after {gone_after:.2f} s")
        assert failed.signal == "SIGKILL"
        assert named_after < 2
        assert (end.status, end.failed_rank) == ("failed", 1)
        assert "rank 1 was killed by SIGKILL" in end.reason
        assert run.steps_of(1) == list(range(1, (failed.step or 0) + 1))


@pytest.mark.nightly
def test_kill_9_of_the_supervisor_leaves_no_rank_behind(runs_dir: Path) -> None:
    with launched(MLP, runs_dir) as run:
        run.at_step(1)
        ranks = [psutil.Process(run.pid(rank)) for rank in (0, 1)]
        os.kill(run.started.pid, signal.SIGKILL)
        seconds = wait_dead(ranks)
        run.wait_gone()
        print(f"\nkill -9 of the supervisor: all ranks gone after {seconds:.2f} s")
        assert seconds < 2
        assert summarise(run.run).status == "lost"


@pytest.mark.by_hand
@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_ranks_without_supervisor_and_reaper_end_themselves(
    runs_dir: Path, fake: Callable[..., None], real: bool
) -> None:
    if not real:
        fake()
    with launched(MLP, runs_dir) as run:
        run.at_step(1)
        (reaper,) = run.processes("tuiapp.trainers.run.reaper")
        reaper.kill()
        os.kill(run.started.pid, signal.SIGKILL)
        run.wait_gone(ORPHAN_S + GONE_S)


@pytest.mark.usefixtures("no_framework")
def test_a_run_whose_directory_is_removed_ends(runs_dir: Path) -> None:
    with launched(MLP, runs_dir) as run:
        run.at_step(1)
        # The run goes on writing meanwhile: what it has made anew goes as well.
        while run.run.path.exists():
            shutil.rmtree(run.run.path, ignore_errors=True)
        seconds = run.wait_gone()
        print(f"\nrun directory removed: all processes gone after {seconds:.2f} s")
