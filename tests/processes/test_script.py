"""The user's own scripts, launched as they are."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from textwrap import dedent

import psutil
import pytest

from tests.kit import ROOT
from tests.kit.harness import Watched, launched, resumed
from tests.kit.reported import values
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import Alert, LogLine, Metrics, RankFailed, RankStarted
from tuiapp.trainers.launch import LaunchError, resume

SCRIPTS = ROOT / "tests/kit/scripts"


def of_script(directory: Path, text: str, **keys: object) -> RunConfig:
    """A configuration that runs a short script of a test's own."""
    path = directory / "train.py"
    path.write_text(dedent(text))
    known: dict[str, object] = {"platform": "cpu", "devices": 1, "working_directory": str(directory)}
    return RunConfig(backend="script", script=str(path), **{**known, **keys})  # type: ignore[arg-type]


def lines(events: list[LogLine], rank: int = 0) -> list[str]:
    return [event.text for event in events if event.rank == rank]


def left_over(run: Watched) -> list[int]:
    """Processes that the run's ranks have started and that are still there."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TUIAPP_RUN_TOKEN", "").startswith(run.run.run_id):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def test_what_torchrun_runs_runs_unchanged(tmp_path: Path, runs_dir: Path) -> None:
    config = RunConfig(
        backend="script", platform="cpu", devices=2, script=str(SCRIPTS / "ddp.py"), working_directory=str(tmp_path),
        arguments="--steps 7 --note 'two words'", environment="COLOUR=red EMPTY='' SPACED='a b'",
    )  # fmt: skip
    with launched(config, runs_dir) as run:
        assert run.end().status == "completed"
        assert [lines(run.of(LogLine), rank)[-1].split()[:2] for rank in (0, 1)] == [["step", "7"]] * 2
        started = run.of(RankStarted)
        assert {(one.rank, one.device) for one in started} == {(0, "cpu"), (1, "cpu")}
        assert run.started.total_steps == run.started.steps_per_epoch == 0
    for rank in (0, 1):
        seen = json.loads((tmp_path / f"seen-{rank}.json").read_text())
        assert seen["argv"] == [str(SCRIPTS / "ddp.py"), "--steps", "7", "--note", "two words"]
        assert (seen["path"], seen["cwd"], seen["note"], seen["elastic"]) == (
            str(SCRIPTS), str(tmp_path), "two words", True,
        )  # fmt: skip
        environ = seen["environ"]
        wanted = {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0",
            "GROUP_WORLD_SIZE": "1", "ROLE_NAME": "default", "ROLE_RANK": str(rank), "ROLE_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RUN_ID": run.run.run_id, "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0", "TORCHELASTIC_USE_AGENT_STORE": "False",
            "TORCHELASTIC_ERROR_FILE": str(run.run.rank(rank) / "torchelastic_error.json"),
            "COLOUR": "red", "EMPTY": "", "SPACED": "a b",
        }  # fmt: skip
        assert {name: environ.get(name) for name in wanted} == wanted
        assert int(environ["OMP_NUM_THREADS"]) >= 1
        assert 1024 < int(environ["MASTER_PORT"]) < 65536
        assert "TUIAPP_RESUME" not in environ
    assert (run.run.path / "code" / "ddp.py").read_text() == (SCRIPTS / "ddp.py").read_text()
    versions = json.loads(run.run.environment.read_text())["versions"]
    assert versions["torch"] == version("torch")
    assert {*versions} == {"numpy", "torch", "tuiapp"}, "what it imports, but Python's own"


@pytest.mark.nightly
def test_processes_that_the_script_starts_itself(tmp_path: Path, runs_dir: Path) -> None:
    config = RunConfig(
        backend="script", platform="cpu", processes="one", script=str(SCRIPTS / "spawn.py"),
        working_directory=str(tmp_path),
    )  # fmt: skip
    with launched(config, runs_dir) as run:
        assert run.end().status == "completed", run.events
        assert run.started.world_size == 1
        assert {f"rank {rank} of 2 sum 2" for rank in (0, 1)} <= set(lines(run.of(LogLine)))


@pytest.mark.nightly
def test_a_module_runs_as_python_runs_it(tmp_path: Path, runs_dir: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "helper.py").write_text("WORD = 'helped'\n")
    (package / "train.py").write_text(
        "import os, sys\nfrom package.helper import WORD\n"
        "print(__name__, WORD, sys.argv[1:], sys.path[0] == os.getcwd())\n"
    )
    config = RunConfig(
        backend="script", platform="cpu", devices=1, script="module:package.train", arguments="-x 1",
        working_directory=str(tmp_path),
    )  # fmt: skip
    with launched(config, runs_dir) as run:
        assert run.end().status == "completed"
        assert lines(run.of(LogLine)) == ["__main__ helped ['-x', '1'] True"]
        assert "-script-train-" not in run.run.run_id
        assert "-script-package-train-" in run.run.run_id
        assert (run.run.code / "train.py").is_file()


def test_a_script_gets_sigterm_and_its_grace(tmp_path: Path, runs_dir: Path) -> None:
    config = of_script(
        tmp_path,
        """
        import signal, subprocess, sys, time
        worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        def save(*_):
            time.sleep(3)  # longer than what a rank gets that was told to stop now
            print("worker", worker.poll())
            print("saved")
            sys.exit(0)
        signal.signal(signal.SIGTERM, save)
        print("ready")
        while True:
            time.sleep(0.1)
        """,
        stop_grace_s=60.0,
    )
    with launched(config, runs_dir) as run:
        run.wait(LogLine, lambda event: event.text == "ready")
        sidecars.send_command(run.run.commands, "stop")
        end = run.end()
        assert (end.status, end.reason) == ("stopped", "on request")
        # What it has started is not told: it may need it to the end.
        assert lines(run.of(LogLine))[-2:] == ["worker None", "saved"]
        run.wait_gone()
        assert left_over(run) == []


def test_a_script_is_started_again_in_the_same_run(tmp_path: Path, runs_dir: Path) -> None:
    config = of_script(
        tmp_path,
        """
        import os
        print("resume", os.environ.get("TUIAPP_RESUME"))
        raise SystemExit("TUIAPP_RESUME" not in os.environ)
        """,
    )
    with launched(config, runs_dir) as run:
        assert run.end().reason == "rank 0 exited with code 1, without saying why"
        run.wait_gone()
        with resumed(run.run) as again:
            assert again.started.attempt == 2
            assert again.end().status == "completed"
            assert lines(again.of(LogLine)) == ["resume 1"]
            again.wait_gone()
        assert sorted(path.name for path in run.run.code.iterdir()) == ["train.py"]
        with pytest.raises(LaunchError, match="the script has completed"):
            resume(run.run)


@pytest.mark.nightly
def test_a_crash_in_native_code_leaves_the_python_stacks(tmp_path: Path, runs_dir: Path) -> None:
    config = of_script(tmp_path, "import os\ndef crash():\n    os.abort()\ncrash()\n")
    with launched(config, runs_dir) as run:
        assert run.end().reason.startswith("rank 0 was killed by SIGABRT — native code aborted")
        assert any("in crash" in line for line in run.of(RankFailed)[0].last_lines)


def test_the_last_traceback_counts_only_if_the_script_died_of_it(tmp_path: Path, runs_dir: Path) -> None:
    config = of_script(
        tmp_path,
        """
        import sys, traceback
        try:
            1 / 0
        except ZeroDivisionError:
            traceback.print_exc()
        sys.exit(7)
        """,
    )
    with launched(config, runs_dir) as run:
        last = "ZeroDivisionError: division by zero"
        assert run.end().reason == f"rank 0 exited with code 7; the last line of its stderr: {last}"
        assert run.of(RankFailed)[0].traceback == ""


def test_metrics_in_its_output(tmp_path: Path, runs_dir: Path) -> None:
    config = of_script(
        tmp_path,
        """
        import os, sys
        for step in range(1, 501):
            stream = sys.stderr if step % 2 else sys.stdout
            print(f"step {step} loss {1 / step:.6f}", file=stream)
        print("accuracy: 0.75")
        """,
        devices=2,
        output_pattern=r"step (?P<step>\d+) loss (?P<loss>\S+)|accuracy: (?P<test__accuracy>\S+)",
    )
    with launched(config, runs_dir) as run:
        end = run.end()
        assert (end.status, end.reason) == ("completed", "500 steps")
        assert (end.summary.steps, end.summary.test_accuracy) == (500, 0.75)
        assert end.summary.loss == pytest.approx(1 / 500, rel=0.9)
        for rank in (0, 1):
            losses = values(run.of(Metrics), "loss", rank)
            assert min(loss for loss in losses if loss) < 0.01
            assert run.last_step(rank) == 0  # what a built-in trainer reports
        assert values(run.of(Metrics), "test/accuracy", 1) == [0.75]


@pytest.mark.nightly
def test_a_pattern_that_never_ends_does_not_hold_up_the_run(tmp_path: Path, runs_dir: Path) -> None:
    text = """
        import sys, time
        print("a" * 60 + "!", flush=True)
        time.sleep(2)
        print("done")
        """
    with launched(of_script(tmp_path, text, output_pattern="(?P<loss>(a+)+)$"), runs_dir) as run:
        assert run.end().status == "completed"
        assert "it is no longer used" in run.wait(Alert, lambda event: event.kind == "output-pattern").text
        assert lines(run.of(LogLine))[-1] == "done"
