"""What a list has kept of ended runs is shown by the next one as long as nothing of them has changed, and no longer."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.recorded import CONFIG, record
from tuiapp import __version__
from tuiapp.library import listed_before, run_index
from tuiapp.library.run_index import RunIndex
from tuiapp.trainers.config.run_config import to_toml
from tuiapp.trainers.contract.about import Change, change_about
from tuiapp.trainers.contract.events import encode
from tuiapp.trainers.contract.lock import LockNote, write_note
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.waiting import Waiting, write_waiting
from tuiapp.trainers.state.summary import RunInfo, summarise

COUNT = 4


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[RunDir]:
    """Runs that ended long ago, of which a list is kept; the newest first."""
    monkeypatch.setattr(run_index, "MANY", COUNT)
    histories = [h.completed(), interrupted.failed(), interrupted.stopped(), h.completed()]
    made = [record(tmp_path / "runs", name(n), events) for n, events in enumerate(histories)]
    for run in made:
        age(run)
    assert RunIndex(tmp_path / "runs").read_all() == [*map(summarise, made[::-1])]
    return made[::-1]


def name(number: int) -> str:
    return f"20261120T10150{number}-torch-ddp-net-3fa1"


def age(run: RunDir) -> None:
    for path in (*run.path.iterdir(), run.path):
        os.utime(path, ns=(then := time.time_ns() - 3600 * 10**9, then))


def again(runs: list[RunDir]) -> tuple[list[RunInfo], int]:
    """Lists them as another process would; returns how many it had to read, too."""
    index = RunIndex(runs[0].path.parent)
    return index.read_all(), index.read


def test_ended_runs_are_not_read_again(runs: list[RunDir]) -> None:
    assert again(runs) == ([*map(summarise, runs)], 0)


def _is_named(run: RunDir) -> None:
    change_about(run, Change(name="baseline", note="a note", tags=("old",), group="sweep"))


def _is_edited(run: RunDir) -> None:
    with run.config.open("a") as file:
        file.write("unknown_key = 1\n")


def _is_resumed(run: RunDir) -> None:
    with run.journal.open("ab") as file:
        file.write(encode(h.started(attempt=2, resumed_from=72)))


def _waits(run: RunDir) -> None:
    write_waiting(run.waits, Waiting(order=1.0))


def _is_replaced(run: RunDir) -> None:
    shutil.rmtree(run.path)
    record(run.path.parent, run.run_id, interrupted.failed())


@pytest.mark.parametrize("change", [_is_named, _is_edited, _is_resumed, _waits, _is_replaced])
def test_one_that_has_changed_is_read(runs: list[RunDir], change: Callable[[RunDir], None]) -> None:
    before = summarise(runs[0])
    change(runs[0])
    infos, read = again(runs)
    assert infos[0] != before
    # Its place in the queue is for the list to say.
    assert (infos[0].status, infos[0].about, infos[0].problem) == _shown(summarise(runs[0]))
    assert (infos[1:], read) == ([*map(summarise, runs[1:])], 1)


def _shown(info: RunInfo) -> tuple[object, ...]:
    return info.status, info.about, info.problem


def test_one_whose_lock_is_taken_is_running_before_it_says_so(runs: list[RunDir]) -> None:
    lock = runs[0].take_lock()
    write_note(lock, LockNote(attempt=2))
    assert [info.status for info in again(runs)[0]] == ["running", "stopped", "failed", "completed"]
    os.close(lock)


def test_deleted_and_moved_runs_are_gone(runs: list[RunDir]) -> None:
    shutil.rmtree(runs[0].path)
    runs[1].path.rename(runs[1].path.parent.parent / "elsewhere")
    assert again(runs) == ([*map(summarise, runs[2:])], 0)
    # A copy is another run's directory, whatever its name.
    shutil.copytree(runs[2].path, runs[0].path)
    assert again(runs) == ([*map(summarise, [runs[0], *runs[2:]])], 1)


def test_what_has_only_just_changed_is_not_kept(runs: list[RunDir]) -> None:
    for run in runs:
        _is_named(run)
    assert again(runs)[1] == again(runs)[1] == COUNT
    for run in runs:
        age(run)
    assert again(runs)[1] == COUNT
    assert again(runs) == ([*map(summarise, runs)], 0)


def test_live_and_lost_runs_are_read_each_time(runs: list[RunDir]) -> None:
    directory = runs[0].path.parent
    lost = record(directory, name(8), h.running())
    live = record(directory, name(9), h.running())
    lock = live.take_lock()
    for run in (lost, live):
        age(run)
    shutil.rmtree(listed_before._file(directory).parent)
    again(runs)
    assert again(runs) == ([*map(summarise, [live, lost, *runs])], 2)
    os.close(lock)


def _of_another_version(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(__version__.encode(), b"0.0.1", 1))


def _of_another_directory(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b'runs"}', b'urns"}', 1))


def _is_a_fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize(
    "harm",
    [
        _of_another_version, _of_another_directory, lambda file: file.unlink(), lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(os.urandom(3000)), lambda file: (file.unlink(), file.mkdir()),
        _is_a_fifo,
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_ignored(runs: list[RunDir], harm: Callable[[Path], object]) -> None:
    harm(listed_before._file(runs[0].path.parent))
    assert again(runs) == ([*map(summarise, runs)], COUNT)


def test_a_damaged_line_costs_its_run_alone(runs: list[RunDir]) -> None:
    file = listed_before._file(runs[0].path.parent)
    lines = file.read_bytes().splitlines()
    file.write_bytes(b"\n".join([*lines[:2], lines[2][:50], lines[3], lines[4][:-20]]))
    assert again(runs) == ([*map(summarise, runs)], 2)


def test_where_nothing_can_be_kept_they_are_read(runs: list[RunDir]) -> None:
    place = listed_before._file(runs[0].path.parent).parent
    shutil.rmtree(place)
    place.touch()
    assert again(runs) == again(runs) == ([*map(summarise, runs)], COUNT)


def test_others_cannot_read_it(runs: list[RunDir]) -> None:
    file = listed_before._file(runs[0].path.parent)
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_configuration_keys_of_all_kinds_come_back(tmp_path: Path) -> None:
    config = msgspec.structs.replace(CONFIG, device_ids=("0", "1"), hosts=("a", "b"), platform="cuda")
    run = record(tmp_path, name(0), h.completed(), config)
    assert to_toml(config) == run.config.read_text()
    kept = (listed_before.stamp(run), summarise(run))
    listed_before.keep(tmp_path, [kept])
    assert listed_before.read_kept(tmp_path) == {run: kept}
