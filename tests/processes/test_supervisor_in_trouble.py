"""Line 14, and what a supervisor meets beside dying ranks: it is suspended, out of descriptors, cut off its disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.kit.harness import GONE_S, MLP, START_S, launched, watching
from tuiapp.library.find import find_run, list_runs
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import Alert, HostSample, RankFailed
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.summary import summarise


@contextmanager
def _suspended(process: psutil.Process) -> Iterator[None]:
    process.suspend()
    try:
        yield
    finally:
        process.resume()


@pytest.mark.nightly
@pytest.mark.parametrize("seconds", [4.0, pytest.param(30.0, marks=pytest.mark.by_hand)])
def test_a_suspended_supervisor_holds_up_no_rank_and_loses_no_record(
    runs_dir: Path, fake: Callable[..., None], seconds: float
) -> None:
    fake(step=0.005)
    with launched(MLP, runs_dir) as run:
        run.at_step(20)
        before = run.steps_of(0)[-1]
        with _suspended(psutil.Process(run.started.pid)):
            time.sleep(seconds)
        sidecars.send_command(run.run.commands, "stop")
        end = run.end()
        meanwhile = end.summary.steps - before
        print(f"\nsupervisor in SIGSTOP for {seconds:g} s: {meanwhile:,} steps meanwhile, none lost")
        assert meanwhile > seconds / 0.005 / 20  # a loaded machine gets at least that far
        assert run.steps_of(0) == run.steps_of(1) == list(range(1, end.summary.steps + 1))
        assert run.alerts() == []


def test_a_rank_that_cannot_be_started_fails_the_run_in_words(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake()
    # In a process of its own: what the tests before have open does not count.
    settings = [word for one in ("platform=cpu", "devices=8", "global_batch_size=48") for word in ("--set", one)]
    run_it = [sys.executable, "-P", "-m", "tuiapp", "run", "mlp", *settings, "--detach", "--runs-dir", str(runs_dir)]
    with_few = ["sh", "-c", 'ulimit -n 26 && exec "$@"', "sh", *run_it]
    subprocess.run(with_few, capture_output=True, timeout=120, check=True)
    with watching(find_run("latest", runs_dir)) as run:
        end = run.end()
        assert end.status == "failed"
        assert "its process could not be started: Too many open files" in end.reason
        assert end.failed_rank == run.of(RankFailed)[0].rank
        run.wait_gone()


@pytest.mark.nightly
def test_reaper_and_sampler_are_started_again_and_that_is_said(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake()
    with launched(MLP, runs_dir) as run:
        run.at_step(1)
        run.wait(HostSample)
        for module, kind in (("run.reaper", "reaper"), ("telemetry", "telemetry")):
            (old,) = run.processes(f"tuiapp.trainers.{module}")
            old.kill()
            alert = run.wait(Alert, lambda alert, kind=kind: alert.kind == kind)  # type: ignore[misc]
            assert "SIGKILL" in alert.text
            deadline = time.monotonic() + START_S
            while not (new := [one for one in run.processes(f"tuiapp.trainers.{module}") if one.pid != old.pid]):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            assert len(new) == 1
        # The new reaper does what the old one would have done.
        os.kill(run.started.pid, signal.SIGKILL)
        run.wait_gone()


@pytest.mark.nightly
def test_ctrl_c_during_a_start_leaves_nothing(
    runs_dir: Path, fake: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake()
    command = [sys.executable, "-P", "-m", "tuiapp", "run", "mlp", "--runs-dir", str(runs_dir)]
    command += ["--set", "platform=cpu", "--set", "epochs=10000"]
    for delay in (0.0, 0.05, 0.15, 0.3):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            deadline = time.monotonic() + START_S
            while not list_runs(runs_dir) and process.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.001)
            time.sleep(delay)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=120)
        finally:
            process.kill()
            process.wait()
        for run in list_runs(runs_dir):
            # It had begun, and was stopped in order.
            assert not run.is_live(), delay
        _wait_no_process(runs_dir)
        for run in list_runs(runs_dir):
            assert summarise(run).status in ("stopped", "lost")


def _wait_no_process(runs_dir: Path) -> None:
    deadline = time.monotonic() + GONE_S
    while left := [
        p.info for p in psutil.process_iter(["pid", "cmdline"]) if str(runs_dir) in " ".join(p.info["cmdline"] or [])
    ]:
        assert time.monotonic() < deadline, left
        time.sleep(0.02)


@pytest.mark.nightly
@pytest.mark.parametrize("full", [False, True], ids=["", "its log cannot be written"])
def test_a_supervisor_that_fails_itself_ends_the_ranks_and_says_so(
    runs_dir: Path, fake: Callable[..., None], monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    fake()
    if full:
        # Here alone, from where it is started: the reaper has the real one.
        monkeypatch.setattr(RunDir, "supervisor_log", property(lambda _: Path("/dev/full")))
        monkeypatch.setattr("tuiapp.trainers.launch.processes.open_own", open)
    monkeypatch.setenv("TUIAPP_TEST_SUPERVISOR", "raise")
    with launched(MLP, runs_dir) as run:
        end = run.end()
        assert end.status == "failed"
        assert "the run's supervisor failed: RuntimeError: the test's own failure of the supervisor" in end.reason
        assert full or "Traceback" in run.run.supervisor_log.read_text()
        run.wait_gone()
