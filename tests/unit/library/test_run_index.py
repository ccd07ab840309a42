"""Many runs listed: what is in a journal's place, what is read again, what is not."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.recorded import record, record_checkpoint
from tuiapp.library.run_index import RunIndex
from tuiapp.trainers.contract.events import JOURNAL_SCHEMA, Alert, encode
from tuiapp.trainers.contract.metrics import TEST_ACCURACY
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.summary import RunInfo, summarise
from tuiapp.trainers.state.text import format_bytes
from tuiapp.view.groups import RunGroup, group_cell
from tuiapp.view.run_list import BY_NAME, order, state

FIRST, SECOND = "20261119T101500-torch-ddp-net-3fa1", "20261120T101500-torch-ddp-mlp-00aa"


def scanned(index: RunIndex) -> list[RunInfo]:
    list(index.scan())
    return index.infos


def test_only_runs_that_changed_are_read_again(tmp_path: Path) -> None:
    run = record(tmp_path, FIRST, h.completed())
    index = RunIndex(tmp_path)
    assert [info.status for info in scanned(index)] == ["completed"]
    assert index.read == 1
    assert [info.status for info in scanned(index)] == ["completed"]
    assert index.read == 0
    record(tmp_path, SECOND, interrupted.failed())
    assert [info.status for info in scanned(index)] == ["failed", "completed"]
    assert index.read == 1
    with run.journal.open("ab") as file:
        file.write(encode(h.started(attempt=2, resumed_from=72)))
    lock = run.take_lock()
    assert [info.status for info in scanned(index)] == ["failed", "running"]
    os.close(lock)
    # It says nothing more, and yet is seen to be gone.
    assert [info.status for info in scanned(index)] == ["failed", "lost"]
    run.path.rename(tmp_path / "elsewhere")
    assert [info.status for info in scanned(index)] == ["failed"]


def test_what_runs_take_on_the_disk_is_measured_where_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sizes() -> list[int | None]:
        list(index.scan())
        count = len(list(index.measure()))
        return [count, *(info.disk_bytes for info in index.infos)]

    def size(run: RunDir) -> int:
        return sum(path.stat().st_size for path in run.path.rglob("*") if path.is_file())

    first, second = record(tmp_path, FIRST, h.completed()), record(tmp_path, SECOND, interrupted.failed())
    index = RunIndex(tmp_path)
    assert [info.disk_bytes for info in scanned(index)] == [None, None]
    record_checkpoint(first, 29)
    before = [size(second), size(first)]
    assert sizes() == [2, *before]
    # A live run is not measured at each look.
    with first.journal.open("ab") as file:
        file.write(encode(h.started(attempt=2, resumed_from=72)))
    assert sizes() == [0, *before]
    monkeypatch.setattr("tuiapp.library.run_index.MEASURE_S", 0.0)
    assert sizes() == [1, before[0], size(first)]
    by_size = order(index.infos, "disk")
    assert [one.directory for one in by_size] == sorted((first, second), key=size, reverse=True)
    assert group_cell(BY_NAME["disk"], RunGroup("", "", tuple(by_size), is_alike=True)) == format_bytes(
        size(first) + size(second)
    )


def test_no_directory(tmp_path: Path) -> None:
    assert scanned(RunIndex(tmp_path / "nowhere")) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_directory_that_may_not_be_read(tmp_path: Path) -> None:
    run = record(tmp_path, FIRST, h.completed())
    run.path.chmod(0)
    assert summarise(run).status == "unreadable"
    run.path.chmod(0o700)


@pytest.mark.parametrize(("written", "schema"), [(b'"schema":7,', 7), (b'"schema":1,', 1), (b"", 1)])
def test_a_journal_of_another_schema_is_called_that(tmp_path: Path, written: bytes, schema: int) -> None:
    run = record(tmp_path, FIRST, h.completed())
    lines = run.journal.read_bytes().replace(b'"schema":%d,' % JOURNAL_SCHEMA, written, 1)
    run.journal.write_bytes(lines)
    info = summarise(run)
    assert (info.status, info.is_readable) == ("newer", False)
    assert f"has schema {schema}" in info.problem
    assert "update tuiapp" in info.problem
    assert info.config is not None
    # One whose first line is damaged is read as far as it goes.
    run.journal.write_bytes(b"{" + lines)
    assert (summarise(run).status, summarise(run).is_readable) == ("completed", True)


def test_of_a_run_without_an_end_the_best_of_its_last_evaluations(tmp_path: Path) -> None:
    run = record(tmp_path, FIRST, h.running(last_step=130))
    info = summarise(run)
    assert info.status == "lost"
    assert info.best_accuracy == pytest.approx(0.9375, abs=1e-4)
    # 20 examples a second and rank of two: by what each reported last.
    assert info.summary.examples_per_second == pytest.approx(2 * 24 / 0.05)


def test_a_lost_run_has_come_to_what_all_its_attempts_have(tmp_path: Path) -> None:
    begun = h.started(attempt=2, resumed_from=58, seconds=3600)
    before = [*interrupted.stopped(), begun]
    summary = summarise(record(tmp_path, FIRST, before)).summary
    # What the first made after step 58 is no part of it.
    assert (summary.steps, summary.epochs) == (58, 2.0)
    assert summary.seconds == pytest.approx(4.9)
    more = [*(h.steps(rank, 59, 82, 3604.5) for rank in range(2)), h.evaluation(3, 3605.5)]
    summary = summarise(record(tmp_path, SECOND, [*before, *more])).summary
    assert summary.steps == 82
    assert summary.seconds == pytest.approx(4.9 + 5.5)
    assert summary.examples_per_second == pytest.approx(24 * 2 / 0.05)
    evaluations = [h.evaluation(epoch, 0).values for epoch in (1, 2, 3)]
    assert summary.best_accuracy == max(one[TEST_ACCURACY][0] or 0.0 for one in evaluations)
    assert summary.test_accuracy == evaluations[-1][TEST_ACCURACY][0]


def test_a_live_run_that_stands_still_says_so_however_long_it_does(tmp_path: Path) -> None:
    stopped = Alert(kind="stopped", rank=1, text="rank 1 is stopped", **h.at(9))
    samples = [h.host_sample(10 + second) for second in range(300)]
    run = record(tmp_path, FIRST, [*h.running(), stopped, *samples])
    run.take_lock()
    info = summarise(run)
    assert (info.status, info.reason, state(info)) == ("running", "rank 1 is stopped", "▲ stalled")
    assert (info.summary.steps, info.summary.examples_per_second) == (130, None)
    over = msgspec.structs.replace(stopped, ended=True, time=h.START + 320)
    on = [h.steps(rank, 131, 140, 321) for rank in range(2)]
    again = record(tmp_path, SECOND, [*h.running(), stopped, over, *on])
    again.take_lock()
    info = summarise(again)
    assert (info.reason, state(info)) == ("", "● running")
    assert info.summary.examples_per_second


@pytest.mark.parametrize("size", [1, 100, 70_000, 300_000])
def test_whatever_stands_in_a_journal(tmp_path: Path, size: int) -> None:
    run = record(tmp_path, FIRST, [])
    run.journal.write_bytes(os.urandom(size))
    assert summarise(run).status == "lost"
    run.journal.write_bytes(b"\n" * size)
    assert summarise(run).status == "lost"
    run.journal.write_bytes(encode(h.started()) + b"[" * size)
    info = summarise(run)
    assert (info.status, info.summary.steps) == ("lost", 0)


def test_a_journal_s_first_event_says_its_schema() -> None:
    assert f'"schema":{JOURNAL_SCHEMA},' in encode(h.started()).decode()
