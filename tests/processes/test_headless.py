"""`tuiapp run`, as a shell or a scheduler starts it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.harness import Watched, watching
from tuiapp.library.find import find_run
from tuiapp.trainers.contract.events import Checkpoint, CheckpointRequested

TUIAPP = [sys.executable, "-P", "-m", "tuiapp"]


def _run(runs_dir: Path, *settings: str, source: str = "mlp") -> list[str]:
    pairs = [part for setting in ("platform=cpu", "devices=2", *settings) for part in ("--set", setting)]
    return [*TUIAPP, "run", source, *pairs, "--json", "--runs-dir", str(runs_dir)]


def _wait_for_an_epoch(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if "epoch 1/" in line:
            return
    raise AssertionError("it ended before its first epoch did")


@pytest.mark.usefixtures("no_framework")
def test_the_last_line_of_stdout_is_the_result(runs_dir: Path) -> None:
    done = subprocess.run(_run(runs_dir, "epochs=2"), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert set(result) == {
        "run", "directory", "status", "steps", "epochs", "examples_per_second",
        "loss", "test_loss", "test_accuracy", "seconds", "blemishes",
    }  # fmt: skip
    assert (result["status"], result["steps"], result["epochs"]) == ("completed", 58, 2.0)
    assert Path(result["directory"]).is_dir()
    assert "COMPLETED" in done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize(("loss", "code"), [("math.nan", 1), ("1 / step", 0)])
def test_strict_takes_a_blemish_for_a_failure(runs_dir: Path, tmp_path: Path, loss: str, code: int) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        f"import math, tuiapp\nfor step in range(1, 88):\n"
        f"    tuiapp.log({{'loss': {loss} if step > 5 else 2.0, 'return': math.nan}}, step=step)\n"
    )
    words = [*TUIAPP, "run", str(script), "--strict", "--json", "--runs-dir", str(runs_dir)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    facts = json.loads(done.stdout)
    assert (done.returncode, facts["status"], len(facts["blemishes"])) == (code, "completed", code), done.stderr
    assert ("▲ NaN in the training loss from step 6 of 87 on" in done.stderr.splitlines()[-1]) == bool(code)


@pytest.mark.usefixtures("no_framework")
def test_a_failed_run_shows_the_first_traceback_and_exits_1(runs_dir: Path, fault: Callable[[str], None]) -> None:
    fault("raise:1:5")
    done = subprocess.run(_run(runs_dir), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert json.loads(done.stdout.splitlines()[-1])["status"] == "failed"
    assert "ValueError: the test's own failure" in done.stderr
    assert "FAILED: rank 1 failed" in done.stderr
    Watched(find_run("latest", runs_dir)).wait_gone()


@pytest.mark.usefixtures("no_framework")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 3)])
def test_signals_stop_the_run_in_order(runs_dir: Path, number: signal.Signals, code: int) -> None:
    process = subprocess.Popen(
        _run(runs_dir, "epochs=99999"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        _wait_for_an_epoch(process)
        with watching(find_run("latest", runs_dir)) as run:
            process.send_signal(signal.SIGUSR1)
            asked = run.wait(CheckpointRequested)
            run.wait(Checkpoint, lambda event: event.mono - event.seconds >= asked.mono)
            process.send_signal(number)
            stdout, stderr = process.communicate(timeout=120)
            assert process.returncode == code, stderr
            result = json.loads(stdout.splitlines()[-1])
            assert result["status"] == "stopped"
            assert run.steps_of(0) == run.steps_of(1)
            assert run.of(Checkpoint)[-1].step == result["steps"]
            assert stderr.splitlines()[-1] == f"to resume: tuiapp run --resume {run.run.path}"
    finally:
        process.kill()
        process.wait()
