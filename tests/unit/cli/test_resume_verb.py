"""`tuiapp run --resume`, `checkpoint`, `profile` and `stop`, on recorded run directories."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.command_line import Command
from tests.kit.recorded import record, record_checkpoint
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import Alert, CheckpointRequested, Event, RunEnded, StepMemory
from tuiapp.trainers.contract.journal import JournalWriter
from tuiapp.trainers.contract.lock import LockNote, write_note
from tuiapp.trainers.contract.rundir import RunDir


@pytest.fixture
def run(runs_dir: Path) -> RunDir:
    """Stopped after step 72 of 290."""
    return record(runs_dir, h.RUN_ID, interrupted.stopped())


def saved(run: RunDir) -> RunDir:
    record_checkpoint(run, 29, accuracy=0.91)
    record_checkpoint(run, 72)
    return run


def files(run: RunDir) -> dict[str, bytes]:
    paths = [path for path in run.path.rglob("*") if path.is_file()]
    return {str(path.relative_to(run.path)): path.read_bytes() for path in paths}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: os.mkfifo(path), "not a regular file"),
        (lambda path: path.mkdir(), "not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "is a symbolic link"),
    ],
    ids=["FIFO", "directory", "link"],
)
def test_a_journal_that_is_no_file(run: RunDir, tuiapp: Command, make: Callable[[Path], None], words: str) -> None:
    saved(run).journal.unlink()
    make(run.journal)
    done = tuiapp("run", "--resume", run.run_id)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"tuiapp: {run.run_id} cannot be resumed: {run.journal} cannot be read: {words}.\n"


REFUSALS = {
    "backend": ("backend=jax-pmap", "step-00000072 was made with backend = torch-ddp, not jax-pmap: start a new run"),
    "model": ("model=mlp", "step-00000072 was made with model = net, not mlp: start a new run for that."),
    "optimizer": ("optimizer=sgd", "was made with optimizer = adam, not sgd"),
    "seed": ("seed=1", "was made with seed = 0, not 1"),
    "order": ("shuffle=false", "was made with shuffle = True, not False"),
    "batch": ("global_batch_size=96", "was made with global_batch_size = 48, not 96"),
    "all steps made": ("epochs=2", "it has made all its 58 steps. To train further: tuiapp run --resume "),
    "all steps allowed": ("max_steps=72", "--set max_steps=144"),
    "bad value": ("epochs=0", "epochs: 0 is not allowed; it must be a whole number of at least 1"),
    "unknown key": ("epoch=20", "epoch: unknown key. Did you mean 'epochs'?"),
    "no value": ("epochs", "epochs: no value given; write --set epochs=VALUE."),
    "devices": ("devices=7", "48 cannot be split evenly over 7 devices"),
    "no such devices": ("devices=12", "devices: 12 is more than this machine has: 2 CPU cores take at most 8"),
}


@pytest.mark.usefixtures("small_machine")
@pytest.mark.parametrize("name", REFUSALS)
def test_what_a_run_cannot_go_on_with(tuiapp: Command, run: RunDir, name: str) -> None:
    setting, words = REFUSALS[name]
    before = files(saved(run))
    done = tuiapp("run", "--resume", "latest", "--set", setting, "--json")
    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert all(line.startswith("tuiapp: ") for line in done.err.splitlines())
    assert files(run) == before


def test_no_checkpoint(tuiapp: Command, run: RunDir) -> None:
    before = files(run)
    done = tuiapp("run", "--resume", h.RUN_ID)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"tuiapp: {h.RUN_ID} cannot be resumed: there is no usable checkpoint.\n"
    assert files(run) == before


def test_no_checkpoint_that_can_be_used_says_why(tuiapp: Command, run: RunDir) -> None:
    record_checkpoint(run, 29, finite=False)
    (record_checkpoint(run, 58) / "model.safetensors").write_bytes(b"weights")
    (record_checkpoint(run, 72) / "manifest.json").write_bytes(b"{")
    before = files(run)
    done = tuiapp("run", "--resume", h.RUN_ID)
    assert (done.code, done.out) == (2, "")
    assert "step-00000029 holds weights that are not finite" in done.err
    assert "step-00000058/model.safetensors is damaged: it has 7 bytes of 21" in done.err
    assert "step-00000072/manifest.json is damaged" in done.err
    assert files(run) == before


def test_a_run_that_goes_on(tuiapp: Command, run: RunDir) -> None:
    before = files(saved(run))
    lock = run.take_lock()
    done = tuiapp("run", "--resume", h.RUN_ID, "--set", "epochs=20")
    assert (done.code, done.out) == (2, "")
    why = "it has not ended. To watch it: tuiapp attach"
    assert done.err == f"tuiapp: {h.RUN_ID} cannot be resumed: {why} {h.RUN_ID}\n"
    assert files(run) == before
    os.close(lock)


def test_show_lists_checkpoints_and_how_to_go_on(tuiapp: Command, run: RunDir) -> None:
    saved(run)
    record_checkpoint(run, 80, finite=False)
    (record_checkpoint(run, 90) / "manifest.json").unlink()
    lines = tuiapp("show", "latest").out.splitlines()
    listed = [line.split() for line in lines[lines.index("checkpoints") + 1 :]]
    assert listed[0] == ["step-00000080", "epoch", "2.8", "42", "B", "weights", "not", "finite"]
    assert listed[1] == ["step-00000072", "epoch", "2.5", "42", "B", "resume", "point"]
    assert listed[2] == ["step-00000029", "epoch", "1", "42", "B", "accuracy", "91.0", "%", "best"]
    assert "step-00000090/manifest.json cannot be read" in " ".join(listed[3])
    assert lines[-1] == f"to resume: tuiapp run --resume {h.RUN_ID}"
    facts = json.loads(tuiapp("show", "latest", "--json").out)
    assert facts["resume"] == f"tuiapp run --resume {h.RUN_ID}"
    assert (facts["resume_step"], facts["missing_steps"]) == (72, [])
    assert [one["step"] for one in facts["checkpoints"]] == [80, 72, 29]
    assert facts["checkpoints"][2] == {
        "name": "step-00000029",
        "directory": str(run.checkpoints / "step-00000029"),
        "step": 29,
        "epoch": 1.0,
        "loss": None,
        "accuracy": 0.91,
        "bytes": 42,
        "finite": True,
        "best": True,
    }


def test_show_of_a_run_elsewhere_names_its_directory(tuiapp: Command, tmp_path: Path) -> None:
    elsewhere = saved(record(tmp_path / "my runs", h.RUN_ID, interrupted.stopped()))
    assert tuiapp("show", elsewhere.path).out.splitlines()[-1] == f"to resume: tuiapp run --resume '{elsewhere.path}'"


@pytest.mark.parametrize("step", [0, 290])
def test_show_of_a_run_that_cannot_be_resumed(tuiapp: Command, run: RunDir, step: int) -> None:
    if step:
        record_checkpoint(run, step)
    assert "to resume" not in tuiapp("show", "latest").out
    assert json.loads(tuiapp("show", "latest", "--json").out)["resume"] is None


class Run:
    """Stands in for a supervisor: holds the lock, and answers a command by writing events."""

    def __init__(self, run: RunDir, monkeypatch: pytest.MonkeyPatch, *events: Event, trouble: str = "") -> None:
        self._run, self._events = run, events
        self._lock: int | None = run.take_lock()
        write_note(self._lock, LockNote(trouble=trouble))
        self._send = sidecars.send_command
        monkeypatch.setattr(sidecars, "send_command", self._answer)

    def _answer(self, commands: Path, command: sidecars.Command, steps: int = 0) -> None:
        self._send(commands, command, steps)
        assert sidecars.take_commands(commands) == [f"{command}={steps}" if steps else command]
        writer = JournalWriter(self._run.journal)
        writer.append(self._events)
        writer.close()
        if any(isinstance(event, RunEnded) for event in self._events):
            self.close()

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def test_checkpoint_waits_for_the_one_it_asked_for(
    tuiapp: Command, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = record(runs_dir, h.RUN_ID, h.running())
    asked = CheckpointRequested(by="command", **h.at(10))
    # One that was being written when the request came, and the one that was asked for.
    stand_in = Run(run, monkeypatch, asked, h.checkpoint(116, 10.01), h.checkpoint(121, 10.2))
    done = tuiapp("checkpoint", "latest")
    stand_in.close()
    assert (done.code, done.out) == (0, f"{run.checkpoints}/step-00000121\n")


def test_checkpoint_of_a_run_that_ends_instead(
    tuiapp: Command, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = record(runs_dir, h.RUN_ID, h.running())
    Run(run, monkeypatch, h.ended("failed", 11, reason="rank 0 failed"))
    done = tuiapp("checkpoint", "latest")
    assert (done.code, done.out) == (1, "")
    assert done.err.endswith(f"tuiapp: {h.RUN_ID} ended before it saved one: failed.\n")


def test_the_profile_of_all_ranks(tuiapp: Command, runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = record(runs_dir, h.RUN_ID, h.running())
    stand_in = Run(run, monkeypatch, *h.profiles())
    done = tuiapp("profile", "--steps", "10")
    stand_in.close()
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "steps 120 to 129 · 100 ms a step, with the profiler's own cost"
    assert lines[3].split()[:11] == ["0", "60", "%", "15", "%", "5", "%", "0", "%", "20", "%"]
    assert lines[4].split()[:3] == ["1", "50", "%"]
    assert lines[4].count("█") == round(0.5 * len(lines[4].split()[-1]))
    assert "31.0 ms   31.0 %        3  aten::convolution_backward" in done.out
    # Of an ended run, and as plain values.
    done = tuiapp("profile", "--json")
    assert [(one["rank"], one["step"], one["spent"]["copies"]) for one in json.loads(done.out)] == [
        (0, 120, 0.05),
        (1, 120, 0.05),
    ]


def test_what_a_compiled_step_takes(tuiapp: Command, runs_dir: Path) -> None:
    memory = StepMemory(arguments=300 << 20, outputs=101 << 20, aliased=100 << 20, temporary=200 << 20)
    found = [
        msgspec.structs.replace(one, peak_bytes=None, process_peak_bytes=peak << 20, step_memory=memory)
        for one, peak in zip(h.profiles(), (600, 700), strict=True)
    ]
    record(runs_dir, h.RUN_ID, [*h.running(), *found, h.ended("completed", 11)])
    lines = tuiapp("profile").out.splitlines()
    place = next(number for number, line in enumerate(lines) if "compiled step" in line)
    assert lines[place : place + 3] == [
        "501 MiB of each device for the compiled step:",
        "  arguments 300 MiB · new outputs 1.00 MiB · temporary 200 MiB",
        "700 MiB at most since the run's start, on rank 1",
    ]
    facts = json.loads(tuiapp("profile", "--json").out)
    assert [(one["step_memory"]["total"] >> 20, one["process_peak_bytes"] >> 20) for one in facts] == [
        (501, 600),
        (501, 700),
    ]


def test_a_profiler_that_fails_on_every_rank(tuiapp: Command, runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = record(runs_dir, h.RUN_ID, h.running())
    alerts = [
        Alert(kind="profile", rank=rank, step=120, text="the profiler did not start", **h.at(11)) for rank in (0, 1)
    ]
    stand_in = Run(run, monkeypatch, *alerts)
    done = tuiapp("profile")
    stand_in.close()
    assert (done.code, done.out) == (1, "")
    assert done.err.endswith("the profiler did not start\n")
