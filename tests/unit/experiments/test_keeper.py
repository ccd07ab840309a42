"""The queue's keeper, with real processes: it starts what waits, once, whatever becomes of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.kit.fake_nvml import GIB, FakeNvml, gpu, needs_compiler, several
from tests.unit.experiments.conftest import Queue, script, wait_until
from tuiapp.actions import stop
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import read_waiting
from tuiapp.trainers.experiments import queue
from tuiapp.trainers.experiments.queue import QueueError, QueueFiles, cancel, change, enqueue, move, start_keeper
from tuiapp.trainers.state.summary import summarise

BRIEF = "import os; open(os.environ['NOTES'], 'a').write(os.environ['TUIAPP_RUN_DIR'].rpartition('/')[2] + chr(10))\n"
"""Notes which run ran."""

UNTIL = """
import os, sys, time
notes = os.environ["NOTES"]
open(notes, "a").write(os.environ["TUIAPP_RUN_DIR"].rpartition("/")[2] + chr(10))
while not os.path.exists(notes + ".go"):
    time.sleep(0.02)
"""
"""The same, and waits to be let on."""


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file to which scripts write the runs that they are of; each gets the name from its environment."""
    file = tmp_path / "notes"
    file.touch()
    monkeypatch.setenv("NOTES", str(file))
    return file


def test_each_runs_once_and_in_order_though_the_keeper_dies(waiting: Queue, tmp_path: Path, notes: Path) -> None:
    config = script(tmp_path, BRIEF)
    runs = [enqueue(config, waiting.runs_dir) for _ in range(4)]
    wait_until(lambda: len(notes.read_text().splitlines()) == 1)
    waiting.kill("queue_keeper")
    assert waiting.waiting, "it was killed in the middle"
    # Any view starts another.
    start_keeper(waiting.runs_dir)
    wait_until(waiting.is_over)
    assert [run_id for _, run_id in waiting.started()] == [run.run_id for run in runs]
    assert notes.read_text().split() == [run.run_id for run in runs]
    assert {summarise(run).status for run in runs} == {"completed"}


@pytest.mark.nightly
def test_a_failed_run_does_not_stop_the_queue(waiting: Queue, tmp_path: Path, notes: Path) -> None:
    bad = enqueue(script(tmp_path, "raise SystemExit(3)", "bad.py"), waiting.runs_dir, retry=2)
    gone = enqueue(script(tmp_path, "", "gone.py"), waiting.runs_dir, held=True)
    (tmp_path / "gone.py").unlink()
    good = enqueue(script(tmp_path, BRIEF), waiting.runs_dir)
    change(waiting.runs_dir, gone, held=False)
    wait_until(waiting.is_over)
    assert [summarise(run).status for run in (bad, gone, good)] == ["failed", "failed", "completed"]
    assert "gone.py" in summarise(gone).reason
    started = [run_id for _, run_id in waiting.started()]
    assert started.count(bad.run_id) == 1, "its own fault is no reason to try again"
    assert gone.run_id not in started


@pytest.mark.nightly
def test_one_that_cannot_be_started_ends_with_the_reason(waiting: Queue, tmp_path: Path, notes: Path) -> None:
    config = script(tmp_path, BRIEF)
    bad = enqueue(config, waiting.runs_dir, held=True)
    place = read_waiting(bad.waits)
    assert place is not None
    change(waiting.runs_dir, bad, held=False, environment={**place.environment, "A=B": "1"})
    good = enqueue(config, waiting.runs_dir)
    wait_until(waiting.is_over)
    assert [summarise(run).status for run in (bad, good)] == ["failed", "completed"]
    assert "It cannot be started: illegal environment variable name" in summarise(bad).reason


@pytest.mark.nightly
def test_a_run_that_lost_its_supervisor_is_tried_again(waiting: Queue, tmp_path: Path, notes: Path) -> None:
    run = enqueue(script(tmp_path, UNTIL), waiting.runs_dir, retry=1)
    # The script may be faster than who has started it.
    wait_until(lambda: notes.read_text() and not run.waits.exists())
    kept = read_waiting(run.kept)
    assert kept is not None
    assert (kept.retry, kept.environment["NOTES"]) == (1, str(notes))
    # A reboot: everything that belongs to the directory ends at once.
    waiting.end()
    assert summarise(run).status == "lost"
    start_keeper(waiting.runs_dir)
    wait_until(lambda: notes.read_text().split() == [run.run_id] * 2 and not run.waits.exists())
    # No further try is left to be kept for.
    assert not run.kept.exists()
    notes.with_name("notes.go").touch()
    wait_until(waiting.is_over)
    assert summarise(run).status == "completed"


@pytest.mark.nightly
def test_what_the_session_had_is_what_the_run_gets(
    waiting: Queue, tmp_path: Path, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = enqueue(script(tmp_path, UNTIL), waiting.runs_dir)
    there = tmp_path / "there"
    there.mkdir()
    monkeypatch.chdir(there)
    monkeypatch.setenv("MINE", "1")
    text = "import os; open('here', 'w').write(os.environ['MINE'])"
    second = enqueue(msgspec.structs.replace(script(tmp_path, text, "second.py")), waiting.runs_dir)
    monkeypatch.delenv("MINE")
    monkeypatch.chdir(tmp_path)
    notes.with_name("notes.go").touch()
    wait_until(waiting.is_over)
    assert {summarise(run).status for run in (first, second)} == {"completed"}
    assert (there / "here").read_text() == "1"
    assert not any("MINE" in path.read_text() for path in second.path.glob("*.json")), (
        "it is kept no longer than needed"
    )


@pytest.mark.nightly
def test_moved_held_and_cancelled_while_another_runs(waiting: Queue, tmp_path: Path, notes: Path) -> None:
    config = script(tmp_path, UNTIL)
    first, second, third, fourth, fifth = (enqueue(config, waiting.runs_dir) for _ in range(5))
    wait_until(lambda: notes.read_text())
    move(waiting.runs_dir, fifth, 0)
    change(waiting.runs_dir, second, held=True)
    cancel(waiting.runs_dir, third)
    notes.with_name("notes.go").touch()
    wait_until(lambda: not waiting.processes("queue_keeper"))
    assert notes.read_text().split() == [first.run_id, fifth.run_id, fourth.run_id]
    assert waiting.waiting == [second.run_id], "it waits without a keeper"
    change(waiting.runs_dir, second, held=False)
    wait_until(waiting.is_over)
    assert summarise(second).status == "completed"
    assert summarise(third).status == "stopped"
    assert not third.rank(0).joinpath("stdout.log").exists()


class Machine8:
    """Eight GPUs, of which other people use some."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.nvml = FakeNvml(directory, several(8))
        for name, value in self.nvml.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("TUIAPP_TELEMETRY_HOST_PIDS", "1")
        for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
            monkeypatch.delenv(name, raising=False)

    def add(self, runs_dir: Path, config: RunConfig, count: int, devices: int) -> list[RunDir]:
        """Queues runs with one command: in this process the library is not to be found."""
        command = [sys.executable, "-P", "-m", "tuiapp", "queue", "add", *[config.script] * count]
        options = ["--set", f"devices={devices}", "--json", "--runs-dir", str(runs_dir)]
        done = subprocess.run([*command, *options], env=self.nvml.run_environment(), capture_output=True, check=True)
        return [RunDir(Path(one["directory"])) for one in json.loads(done.stdout)]

    def use(self, *numbers: int) -> None:
        """Has others use these GPUs."""
        parts = []
        for number in range(8):
            uuid, name = f"GPU-{number:04}", f"Fake {number}"
            if number in numbers:
                busy = f"process {os.getpid()} {70 * GIB}"
                parts.append(gpu(uuid, name, busy, memory_used=70 * GIB, utilization=99, no_processes=None))
            else:
                parts.append(gpu(uuid, name, memory_used=0, utilization=0))
        self.nvml.say("".join(parts))


@pytest.mark.nightly
@needs_compiler
def test_never_on_a_gpu_that_somebody_uses(
    waiting: Queue, tmp_path: Path, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = Machine8(tmp_path, monkeypatch)
    gpus.use(0, 1, 2, 3, 4)
    runs = gpus.add(waiting.runs_dir, script(tmp_path, UNTIL), 4, devices=1)
    (large,) = gpus.add(waiting.runs_dir, script(tmp_path, UNTIL), 1, devices=4)

    def given(run: RunDir) -> tuple[str, ...]:
        config = summarise(run).config
        assert config is not None
        return config.device_ids

    wait_until(lambda: len(notes.read_text().split()) == 3)
    assert sorted(uuid for run in runs[:3] for uuid in given(run)) == ["GPU-0005", "GPU-0006", "GPU-0007"]
    seen = json.loads(QueueFiles(waiting.runs_dir).outlook.read_text())
    assert seen[runs[3].run_id]["reason"] == "waits for 1 GPU: 0 free of 8"
    gpus.use(1, 2, 3, 4)
    wait_until(lambda: len(notes.read_text().split()) == 4, 15)
    assert given(runs[3]) == ("GPU-0000",)
    assert waiting.waiting == [large.run_id]
    notes.with_name("notes.go").touch()
    wait_until(waiting.is_over)
    assert not {*given(large)} & {"GPU-0001", "GPU-0002", "GPU-0003", "GPU-0004"}
    assert len(given(large)) == 4


@pytest.mark.parametrize("elsewhere", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_run_whose_start_hangs_can_be_cancelled(
    waiting: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    hangs, data = tmp_path / "hangs", tmp_path / "data.py"
    data.write_text(
        "import os, time\nimport numpy as np\n"
        f"while os.path.exists({str(hangs)!r}):\n    open({str(tmp_path / 'asked')!r}, 'w').close(); time.sleep(0.02)\n"
        "def arrays():\n    return [np.zeros((8, 4, 4), np.float32), np.zeros(8, np.int64)] * 2\n"
    )
    config = RunConfig(model="mlp", platform="cpu", devices=1, dataset=f"py:{data}:arrays", global_batch_size=4)
    run = enqueue(config, waiting.runs_dir, held=True, retry=1)
    hangs.touch()
    change(waiting.runs_dir, run, held=False)
    wait_until((tmp_path / "asked").exists)
    wait_until(lambda: "has been starting" in str(queue.outlook(waiting.runs_dir).get(run.run_id)))
    if elsewhere:
        sidecars.send_command(run.commands, "stop")
        wait_until(lambda: not run.is_live())
    else:
        monkeypatch.setattr(queue, "BUSY_S", 0.1)
        assert stop.do([run]).of("information") == ["Cancelled 1 run in the queue."]
    assert (summarise(run).status, run.is_live()) == ("stopped", False)
    # Its keeper does not take it for one that was killed, which it would try again.
    wait_until(waiting.is_over)
    assert not waiting.started()


@pytest.mark.nightly
def test_a_keeper_that_is_stopped_is_named(waiting: Queue, tmp_path: Path, notes: Path) -> None:
    for _ in range(2):
        enqueue(script(tmp_path, UNTIL), waiting.runs_dir)
    wait_until(lambda: notes.read_text())
    keeper = waiting.only("queue_keeper")
    keeper.suspend()
    try:
        with pytest.raises(QueueError, match=f"kill -CONT {keeper.pid}"):
            enqueue(script(tmp_path, BRIEF), waiting.runs_dir)
    finally:
        keeper.resume()
    notes.with_name("notes.go").touch()
    wait_until(waiting.is_over)
    assert len(notes.read_text().split()) == 3
