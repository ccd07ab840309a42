"""Lines 1, 5, 6, 7, 9, 10 and 11: what becomes of a run's processes when some of them die."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.kit.command_line import in_process
from tests.kit.harness import MLP, START_S, Watched, launched, resumed, wait_dead
from tuiapp.feeds.feed import JournalFeed
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import Checkpoint, RankFailed
from tuiapp.trainers.contract.orphans import find_orphans
from tuiapp.trainers.state.condition import headline
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.summary import summarise

FOUR = msgspec.structs.replace(MLP, devices=4)
GRACE_S = 3.0
"""What ranks get to end by themselves, and then on SIGTERM: SETTLE_S + TERM_GRACE_S."""


def _view(run: Watched, words: str, seconds: float = START_S) -> float:
    """Wait until the dashboard's own reading of the run says something; gives the time."""
    feed, state = JournalFeed(run.run), RunState(run.run.run_id)
    feed.start()
    deadline = time.monotonic() + seconds
    try:
        while True:
            for event in feed.take(10_000):
                apply(state, event)
            if (said := headline(state)) and words in said.text:
                return time.monotonic()
            assert time.monotonic() < deadline, said
            time.sleep(0.005)
    finally:
        feed.close()


def test_kill_9_of_a_rank_of_four_with_one_that_ignores_sigterm(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake("deaf:0:1", step=0.01)
    with launched(FOUR, runs_dir) as run:
        run.at_step(50)
        ranks = [psutil.Process(run.pid(rank)) for rank in range(4)]
        ranks[1].kill()
        killed = time.monotonic()
        seen = _view(run, "rank 1 was killed by SIGKILL at step") - killed
        wait_dead(ranks)
        gone = time.monotonic() - killed
        end = run.end()
        run.wait_gone()
        print(f"\nkill -9 of 1 of 4: in the view after {seen:.2f} s, all gone after {gone:.2f} s of {GRACE_S:g}+1")
        assert seen < 2
        assert gone < GRACE_S + 1
        assert (end.status, end.failed_rank) == ("failed", 1)
        (failed,) = [one for one in run.of(RankFailed) if one.rank == 1]
        assert run.steps_of(1) == list(range(1, (failed.step or 0) + 1))
        assert (failed.step or 0) >= 50


def test_kill_9_of_the_supervisor_takes_the_ranks_children_along_and_the_run_can_be_resumed(
    runs_dir: Path, fake: Callable[..., None]
) -> None:
    fake("child:1:5")
    with launched(MLP, runs_dir) as run:
        run.at_step(10)
        sidecars.send_command(run.run.commands, "checkpoint")
        saved = run.wait(Checkpoint)
        children = [process for process in psutil.process_iter() if _is_child_of_rank(process, run)]
        assert len(children) == 1
        ranks = [psutil.Process(run.pid(rank)) for rank in (0, 1)]
        os.kill(run.started.pid, signal.SIGKILL)
        gone = wait_dead([*ranks, *children])
        run.wait_gone()
        print(f"\nkill -9 of the supervisor: ranks and their children gone after {gone:.2f} s")
        assert gone < 2
        assert summarise(run.run).status == "lost"
    config = msgspec.structs.replace(MLP, max_steps=saved.step + 300)
    with resumed(run.run, config) as again:
        assert (again.started.resumed_from or 0) >= saved.step
        assert again.end().status == "completed"


def _is_child_of_rank(process: psutil.Process, run: Watched) -> bool:
    try:
        return "SIG_IGN" in " ".join(process.cmdline()) and process.environ().get("TUIAPP_RUN_TOKEN", "").startswith(
            run.run.run_id
        )
    except psutil.Error:
        return False


@pytest.mark.nightly
def test_what_outlives_supervisor_and_reaper_is_found_and_ended(
    runs_dir: Path, fake: Callable[..., None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake("child:1:5")
    with launched(MLP, runs_dir) as run:
        run.at_step(10)
        ranks = [psutil.Process(run.pid(rank)) for rank in (0, 1)]
        (child,) = [process for process in psutil.process_iter() if _is_child_of_rank(process, run)]
        (reaper,) = run.processes("tuiapp.trainers.run.reaper")
        # Stopped ones cannot end themselves, which they would do after some seconds.
        for process in (*ranks, child):
            process.suspend()
        assert find_orphans(runs_dir) == []
        supervisor = psutil.Process(run.started.pid)
        reaper.kill()
        supervisor.kill()
        # Not before it is dead has it let go of the run's lock.
        wait_dead([reaper, supervisor])
        strays = {stray.pid: stray for stray in find_orphans(runs_dir)}
        assert {one.pid for one in (*ranks, child)} <= set(strays)
        assert strays[child.pid].run_id == run.run.run_id
        doctor = [sys.executable, "-P", "-m", "tuiapp", "doctor"]
        said = subprocess.run(doctor, capture_output=True, text=True, timeout=60, check=False)
        assert f"rank 1 (pid {ranks[1].pid})" in said.stdout
        assert f"started by rank 1 (pid {child.pid})" in said.stdout
        assert said.returncode == 1
        began = time.monotonic()
        # Doctor ends what any run of this user has left behind: here no other test's, nor the user's own.
        monkeypatch.setattr("tuiapp.verbs.doctor.find_orphans", lambda: find_orphans(runs_dir))
        done = in_process(capsys, "doctor", "--end-strays")
        print(f"\nstrays: {len(strays)} found; ended, doctor included, in {time.monotonic() - began:.2f} s")
        assert "ended what was left behind by" in done.out
        assert find_orphans(runs_dir) == []
        wait_dead([*ranks, child])
        assert summarise(run.run).status == "lost"


def test_the_first_cause_comes_first_and_what_follows_from_it_is_folded_under_it(
    runs_dir: Path, fake: Callable[..., None]
) -> None:
    fake("raise:2:20")
    with launched(FOUR, runs_dir) as run:
        end = run.end()
        failures = run.of(RankFailed)
        assert end.failed_rank == 2
        assert "the test's own failure" in end.reason
        assert "sitecustomize.py" in next(one for one in failures if one.rank == 2).traceback
        others = {one.rank: one.error for one in failures if one.rank != 2}
        assert all("Connection" in error for error in others.values()), others
        run.wait_gone()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("segv", "rank 1 was killed by SIGSEGV before its first step — a crash in native code"),
        pytest.param("exit", "rank 1 exited with code 3 before its first step", marks=pytest.mark.nightly),
        ("memory", "rank 1 failed before its first step: MemoryError"),
    ],
)
def test_deaths_are_named_in_words(runs_dir: Path, fake: Callable[..., None], kind: str, words: str) -> None:
    fake(f"{kind}:1:1")
    with launched(MLP, runs_dir) as run:
        assert words in run.end().reason
        failed = next(one for one in run.of(RankFailed) if one.rank == 1)
        if kind == "exit":
            assert failed.last_lines == [f"last words {number}" for number in range(10, 30)]
        if kind == "memory":
            assert "needs less memory" in run.end().reason
            assert "MemoryError" in failed.traceback
        run.wait_gone()


@pytest.mark.usefixtures("no_framework")
def test_a_run_whose_directory_is_removed_ends(runs_dir: Path) -> None:
    with launched(MLP, runs_dir) as run:
        run.at_step(1)
        # The run goes on writing meanwhile: what it has made anew goes as well.
        while run.run.path.exists():
            shutil.rmtree(run.run.path, ignore_errors=True)
        seconds = run.wait_gone()
        print(f"\nrun directory removed: all processes gone after {seconds:.2f} s")


@pytest.mark.nightly
def test_what_a_rank_of_torch_raises_is_told_though_its_process_group_does_not_end(
    runs_dir: Path, fault: Callable[[str], None]
) -> None:
    fault("raise-blocked:1:20")
    with launched(MLP, runs_dir) as run:
        end = run.end()
        assert (end.status, end.failed_rank) == ("failed", 1)
        first = next(event for event in run.of(RankFailed) if event.rank == 1)
        assert (first.error, first.exit_code) == ("ValueError: the test's own failure", 1)
        assert "trainers/backends/torch_ddp.py" in first.traceback
        # All steps before the failure are on record.
        assert run.steps_of(1) == list(range(1, 20))
        run.wait_gone()
