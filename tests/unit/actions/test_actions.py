"""What is done with runs: stopping, deleting, holding, asking one without a mailbox, and which ones words mean."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.recorded import CONFIG, record, record_checkpoint
from tuiapp.actions import queue as actions
from tuiapp.actions import stop
from tuiapp.actions.action import ActionError, select
from tuiapp.actions.command import send
from tuiapp.actions.delete import remove_run, sweep_removed
from tuiapp.actions.report import refusal as no_report
from tuiapp.actions.report import suggested
from tuiapp.actions.stop import Stoppable, Waits
from tuiapp.library.find import UnknownRunError, list_runs
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.lock import LockNote, write_note
from tuiapp.trainers.contract.process_identity import identity, machine
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import About, find_waiting, take_commands, write_about
from tuiapp.trainers.experiments import queue
from tuiapp.trainers.state.summary import summarise

NAMES_SIGNALS = """
import signal
signals = {signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
print("ready", flush=True)
while True:
    print(signal.Signals(signal.sigwait(signals)).name, flush=True)
"""


@pytest.fixture
def live_run(tmp_path: Path) -> Iterator[RunDir]:
    """A live run without a mailbox."""
    live_run = RunDir(tmp_path)
    lock = live_run.take_lock()
    yield live_run
    os.close(lock)


@pytest.fixture
def supervisor() -> Iterator[subprocess.Popen[str]]:
    """Says which signals it gets."""
    with subprocess.Popen([sys.executable, "-c", NAMES_SIGNALS], stdout=subprocess.PIPE, text=True) as process:
        assert heard(process) == "ready"
        yield process
        process.kill()


def heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def note(live_run: RunDir, **what: str) -> None:
    fd = os.open(live_run.lock, os.O_RDWR)
    write_note(fd, LockNote(**what))  # type: ignore[arg-type]
    os.close(fd)


def test_the_mailbox_comes_first(live_run: RunDir) -> None:
    live_run.commands.mkdir()
    assert send(live_run, "stop") == ""
    assert sidecars.take_commands(live_run.commands) == ["stop"]


def test_a_signal_instead(live_run: RunDir, supervisor: subprocess.Popen[str]) -> None:
    note(live_run, supervisor=identity(supervisor.pid), machine=machine(), host="here")
    commands: dict[sidecars.Command, str] = {"checkpoint": "SIGUSR1", "stop": "SIGTERM", "stop-now": "SIGQUIT"}
    for command, name in commands.items():
        said = send(live_run, command)
        assert said.startswith(
            f"{live_run.commands} cannot be written (No such file or directory): sent {name} to its super"
        )
        assert ("a second one stops the run at once" in said) == (command == "stop")
        assert heard(supervisor) == name


def test_what_blocks_it(live_run: RunDir, supervisor: subprocess.Popen[str]) -> None:
    who, here = identity(supervisor.pid), machine()
    later = f"{supervisor.pid}:1"
    for what, words in {
        "": "its lock file does not say which process to signal",
        f"{who} elsewhere": "a signal reaches its supervisor only from node7, where it runs",
        f"{later} {here}": f"its supervisor, pid {supervisor.pid}, is gone",
        f"none {here}": "is gone",
    }.items():
        known_as, _, where = what.partition(" ")
        note(live_run, supervisor=known_as, machine=where, host="node7")
        with pytest.raises(ActionError, match=words):
            send(live_run, "stop-now")
    note(live_run, supervisor=who, machine=here)
    send(live_run, "checkpoint")
    # Nothing came before it.
    assert heard(supervisor) == "SIGUSR1"


def test_a_run_that_is_over(tmp_path: Path) -> None:
    with pytest.raises(ActionError, match="its supervisor is not running"):
        send(RunDir(tmp_path), "stop")


def test_a_run_out_of_reach_is_asked_by_what_its_lock_said_last(
    supervisor: subprocess.Popen[str], tmp_path: Path
) -> None:
    known = LockNote(supervisor=identity(supervisor.pid), machine=machine())
    away = RunDir(tmp_path / "not here")
    with pytest.raises(ActionError, match="its supervisor is not running"):
        send(away, "stop")
    assert "sent SIGTERM" in send(away, "stop", known)
    assert heard(supervisor) == "SIGTERM"
    supervisor.kill()
    supervisor.wait()
    with pytest.raises(ActionError, match="is gone"):
        send(away, "stop", known)


RUN_ID = "20261119T101500-torch-ddp-net-3fa1"


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = record(tmp_path, RUN_ID, h.completed())
    record_checkpoint(made, 290)
    return made


def test_nothing_is_left(run: RunDir, tmp_path: Path) -> None:
    remove_run(run)
    assert os.listdir(tmp_path) == ["home"] or os.listdir(tmp_path) == []


def test_a_run_that_goes_on_stays(run: RunDir) -> None:
    lock = run.take_lock()
    with pytest.raises(ActionError, match=f"is running. Stop it first: tuiapp stop {RUN_ID}"):
        remove_run(run)
    os.close(lock)
    assert run.journal.exists()
    remove_run(run)
    assert not run.path.exists()


def test_a_directory_that_is_not_named_like_a_run_stays(tmp_path: Path) -> None:
    run = record(tmp_path, "my-project", h.completed())
    with pytest.raises(ActionError, match="does not have a run's name"):
        remove_run(run)
    assert run.config.exists()


def test_a_link_stays_and_so_does_what_it_points_at(run: RunDir, tmp_path: Path) -> None:
    other = RunDir(tmp_path / "20261119T101500-torch-ddp-net-ffff")
    other.path.symlink_to(run.path)
    with pytest.raises(ActionError, match="is a link"):
        remove_run(other)
    assert run.journal.exists()


def test_a_link_within_a_run_is_removed_and_not_followed(run: RunDir, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "precious").touch()
    (run.path / "data").symlink_to(data)
    remove_run(run)
    assert (data / "precious").exists()


def test_what_an_interrupted_removal_left_is_swept(
    run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", die)
        with pytest.raises(KeyboardInterrupt):
            remove_run(run)
    assert list_runs(tmp_path) == []
    assert sweep_removed(tmp_path) == 1
    assert [name for name in os.listdir(tmp_path) if name != "home"] == []
    assert sweep_removed(tmp_path) == 0
    assert sweep_removed(tmp_path / "nowhere") == 0


@pytest.fixture
def waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[RunDir]:
    monkeypatch.setattr(queue, "start_keeper", lambda runs_dir: "")
    config = RunConfig(model="mlp", platform="cpu", devices=1)
    return [queue.enqueue(config, tmp_path) for _ in range(2)]


@pytest.fixture
def ended(tmp_path: Path) -> RunDir:
    return record(tmp_path, "20261120T101500-torch-ddp-net-3fa1", h.completed())


def test_those_that_wait_are_changed_and_the_other_is_named(waits: list[RunDir], ended: RunDir) -> None:
    first, second = waits
    runs_dir = first.path.parent
    for outcome in (
        actions.hold([first, ended, second], held=True),
        actions.move([(first, 1), (ended, 0), (second, 0)]),
    ):
        assert outcome.done == waits
        assert outcome.of("error") == [f"{ended.run_id} does not wait in the queue."]
    found = find_waiting(runs_dir)
    assert [one.run.run_id for one in found] == [second.run_id, first.run_id]
    assert all(one.waiting.held for one in found)
    assert actions.hold([first], held=False).done == [first]
    assert [one.waiting.held for one in find_waiting(runs_dir)] == [True, False]
    assert actions.cancel([ended, *waits]).done == waits
    assert find_waiting(runs_dir) == []


FIRST, SECOND, THIRD = (f"20261120T10150{n}-torch-ddp-net-3fa{n}" for n in (3, 2, 1))


@pytest.fixture
def runs_dir(tmp_path: Path) -> Path:
    abouts = {
        FIRST: About(name="baseline", tags=("sweep",), group="rates"),
        SECOND: About(name="wide", tags=("sweep", "old"), group="rates"),
        THIRD: About(name="lr=0.5"),
    }
    for name, about in abouts.items():
        events = interrupted.failed() if name == SECOND else h.completed()
        config = msgspec.structs.replace(CONFIG, learning_rate=0.5 if name == THIRD else 0.01)
        write_about(record(tmp_path, name, events, config), about)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["latest"], [FIRST]),
        ([SECOND[:15], "wide"], [SECOND]),
        (["rates"], [FIRST, SECOND]),
        (["lr=0.5", "rates"], [THIRD, FIRST, SECOND]),
        (["tag:sweep"], [FIRST, SECOND]),
        (["tag:sweep", "state:failed"], [SECOND]),
        (["tag:sweep failed", "baseline"], [FIRST, SECOND]),
        (["lr>=0.5"], [THIRD]),
        (["group:rates", "test/accuracy>0"], [FIRST, SECOND]),
    ],
)
def test_what_is_meant(runs_dir: Path, words: list[str], expected: list[str]) -> None:
    assert sorted(run.run_id for run in select(words, runs_dir)) == sorted(expected)
    assert [run.path.parent for run in select(words, runs_dir)] == [runs_dir] * len(expected)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["failed"], "There is no run 'failed'"),
        (["tag:sweep", "failed"], "There is no run 'failed'"),
        (["tag:nothing"], "None of 3 runs matches 'tag:nothing'"),
        (["ratse"], "There is no run 'ratse' .* Did you mean 'rates'?"),
        (["lr<"], "'lr<' is no filter"),
        (["lrate<0.1"], "no run has 'lrate'"),
        ([""], "There is no run ''"),
        (["20261120T1015"], "matches 3 runs"),
    ],
)
def test_what_means_nothing(runs_dir: Path, words: list[str], why: str) -> None:
    with pytest.raises(UnknownRunError, match=why):
        select(words, runs_dir)


def test_a_name_that_a_run_and_a_group_have(runs_dir: Path) -> None:
    write_about(select([THIRD], runs_dir)[0], About(name="rates"))
    with pytest.raises(UnknownRunError, match="type its id, or group:rates"):
        select(["rates"], runs_dir)
    assert len(select(["group:rates", THIRD], runs_dir)) == 3


RUN = RunDir(Path("/runs/20261120T101500-torch-ddp-net-3fa1"))


def one(grace_s: float | None = None, waits: Waits = "", alone: str = "") -> Stoppable:
    return Stoppable(RUN, "wide", grace_s, waits, alone)


@pytest.mark.parametrize(
    ("runs", "again", "title", "words", "answers"),
    [
        ([one()], False, "Stop this run?", "saves a checkpoint after the step", ["stop", "run-on"]),
        ([one(alone="Of node 1.")], False, "Stop this run?", "from there. Of node 1.", ["stop", "run-on"]),
        ([one()], True, "Stop now?", "without another checkpoint", ["wait", "stop-now"]),
        ([one(90.0)], False, "Stop this script?", "Otherwise it gets SIGTERM, and SIGKILL", ["stop", "run-on"]),
        ([one(90.0)], True, "Stop now?", "with SIGKILL after two seconds", ["wait", "stop-now"]),
        ([one(waits="queue")], False, "Cancel this run?", "It leaves the queue", ["stop", "run-on"]),
        ([one(waits="Slurm")], False, "Cancel its job?", "Slurm job is cancelled", ["stop", "run-on"]),
        ([one(), one()], False, "Stop 2 runs?", "Each saves a checkpoint", ["stop", "run-on"]),
        ([one(), one(90.0)], False, "Stop 2 runs?", "does not ask should_stop() gets SIGTERM", ["stop", "run-on"]),
        ([one(), one(waits="queue")], False, "Stop 2 runs?", "that is queued does not start", ["stop", "run-on"]),
        ([one()] * 8, True, "Stop 8 runs now?", "and 2 more\n \nThey are stopping", ["wait", "stop-now"]),
    ],
)
def test_what_is_asked(runs: list[Stoppable], again: bool, title: str, words: str, answers: list[str]) -> None:
    question = stop.question(runs, again=again)
    assert (question.title, [answer for answer, _, _ in question.answers]) == (title, answers)
    assert words in question.text
    assert f"The rest of the {len(runs) + 2} are over" in stop.question(runs, again=again, others=2).text


def test_one_that_cannot_be_asked_does_not_keep_the_others(tmp_path: Path) -> None:
    runs = [record(tmp_path, f"20261120T10150{n}-torch-ddp-net-3fa1", h.running()) for n in range(3)]
    locks = [run.take_lock() for run in runs]
    runs[0].commands.rmdir()
    outcome = stop.do(runs, now=True)
    assert outcome.done == runs[1:]
    assert outcome.of("information") == ["Asked 2 runs to stop now."]
    assert f"Cannot send the command to {runs[0].run_id}" in outcome.of("error")[0]
    assert [take_commands(run.commands) for run in runs[1:]] == [["stop-now"]] * 2
    for lock in locks:
        os.close(lock)


def test_a_report_is_called_after_its_run_or_group(tmp_path: Path) -> None:
    runs = [record(tmp_path, f"20261120T10150{n}-torch-ddp-net-3fa1", []) for n in range(2)]
    assert suggested([summarise(runs[0])]) == runs[0].run_id
    assert suggested([*map(summarise, runs)]) == "report"
    for run in runs:
        write_about(run, About(group="sweep/1"))
    assert suggested([*map(summarise, runs)]) == "report-sweep-1"
    assert (no_report(8), "8 runs at most, not 9" in no_report(9)) == ("", True)
