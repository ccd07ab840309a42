"""What a run came to is the same from the file that its supervisor writes and from the journal, and costs little."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import asdict, replace

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.recorded import record
from tuiapp.trainers.config.run_config import RunConfig, to_toml_values
from tuiapp.trainers.contract.events import AnyEvent, Blemish, Facts, Figures, Metrics, Queued, RunEnded, encode
from tuiapp.trainers.contract.journal import JournalReader, JournalWriter
from tuiapp.trainers.contract.lock import Liveness
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.status import MAX_BYTES, Details, read_details, read_status, write_status
from tuiapp.trainers.state import status as statuses
from tuiapp.trainers.state.status import append_event, known
from tuiapp.trainers.state.summary import summarise

NAME = "20261119T101500-torch-ddp-net-3fa1"
HISTORIES = {
    "completed": h.completed, "failed": interrupted.failed, "stopped": interrupted.stopped, "lost": h.running,
    "resumed": lambda: [*interrupted.stopped(), *interrupted.resumed()],
    "nan": interrupted.with_nan,
}  # fmt: skip


def written(run: RunDir) -> None:
    """What its supervisor leaves."""
    now = known(run, Liveness.NOBODY)
    write_status(run, now.status, now.facts, Details())


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_with_or_without_the_file_a_list_shows_the_same(tmp_path: Path, history: Callable[[], list[AnyEvent]]) -> None:
    run = record(tmp_path, NAME, history())
    folded = summarise(run)
    written(run)
    assert run.status.stat().st_size <= MAX_BYTES
    assert run.status.stat().st_mode & 0o777 == 0o600
    assert summarise(run) == folded


def live(tmp_path: Path) -> tuple[RunDir, int]:
    """A run that has come 8 steps further than its status, and its lock."""
    run = record(tmp_path, NAME, h.running(last_step=72))
    written(run)
    lock = run.take_lock()
    writer = JournalWriter(run.journal)
    writer.append([h.steps(rank, 73, 80, 9.0) for rank in range(2)])
    writer.close()
    return run, lock


def test_a_live_run_is_as_its_supervisor_wrote_it(tmp_path: Path) -> None:
    run, lock = live(tmp_path)
    assert summarise(run).summary.steps == 72
    os.close(lock)
    assert summarise(run).summary.steps == 80


def test_a_live_run_whose_supervisor_writes_no_status_is_folded(tmp_path: Path) -> None:
    """It was started by an older version, and outlives the upgrade."""
    run, lock = live(tmp_path)
    os.utime(run.status, (0, 0))
    assert summarise(run).summary.steps == 80
    os.close(lock)


def test_a_file_of_another_journal_or_version_is_ignored(tmp_path: Path) -> None:
    run = record(tmp_path, NAME, h.completed())
    whole = summarise(run)
    written(run)
    long = run.status.read_bytes()
    for data in (b"", b"{", long[:-5], long.replace(b'"schema":1', b'"schema":9', 1), os.urandom(500)):
        run.status.write_bytes(data)
        assert (read_status(run), summarise(run)) == (None, whole)
    # A journal that was cut off, or is another's.
    run.status.write_bytes(long.replace(b'"size":', b'"size":9', 1))
    assert summarise(run) == whole


def test_what_is_large_stands_beside_it(tmp_path: Path) -> None:
    config = RunConfig(backend="script", script="train.py", arguments="--long " * 900)
    begun = replace(h.started(1), config=to_toml_values(config), steps_per_epoch=0, total_steps=0)
    facts = Facts(name="mine", config={f"key{n}": "x" * 100 for n in range(200)}, **h.at(1))
    values: dict[str, list[float | None]] = {f"metric{n}/{'long' * 30}": [float(n)] for n in range(64)}
    metrics = Metrics(rank=0, first_step=1, values=values, **h.at(2))
    end = RunEnded(
        status="failed",
        reason="why " * 500,
        summary=replace(h.summary(1, 3), blemishes=[Blemish(kind="hang", text="hung " * 500)]),
        **h.at(3),
    )
    run = record(tmp_path, NAME, [begun, facts, metrics], config)
    whole = summarise(run)
    written(run)
    assert run.status.stat().st_size <= MAX_BYTES
    assert summarise(run) == whole
    assert whole.facts.config == facts.config
    assert len(whole.summary.metrics) == 64
    assert whole.summary.metrics[next(iter(values))] == Figures(0.0, 0.0, 0.0)
    append_event(run, end)
    assert run.status.stat().st_size <= MAX_BYTES
    found = summarise(run)
    assert (found.status, found.name, found.config) == ("failed", "mine", config)
    # Its text is cut, not lost: the journal has it.
    assert found.reason == end.reason[:300]
    status = read_status(run)
    assert status is not None
    assert read_details(run, status).facts is not None


def test_what_waits_again_is_as_it_was_and_queued(tmp_path: Path) -> None:
    run = record(tmp_path, NAME, interrupted.failed())
    before, approx = known(run).status.summary, partial(pytest.approx, abs=1e-3)
    append_event(run, Queued(job="17", reason="Priority"))
    status = known(run).status
    assert (status.queued and status.queued.job, status.end) == ("17", None)
    assert asdict(status.summary) == {name: approx(each) for name, each in asdict(before).items()}
    assert read_status(run) == status


@pytest.mark.parametrize("history", [h.completed, h.running])
def test_the_journal_of_a_run_that_is_over_is_folded_once(
    history: Callable[[], list[AnyEvent]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = record(tmp_path, NAME, history())
    before = sorted(run.path.iterdir())
    first = summarise(run)
    assert sorted(run.path.iterdir()) == before
    kept = statuses._kept_file(run)
    assert (kept.stat().st_mode & 0o777, kept.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    read, plain = list[int](), JournalReader.rest

    def reading(reader: JournalReader) -> Iterator[AnyEvent]:
        read.append(reader.offset)
        return plain(reader)

    monkeypatch.setattr(JournalReader, "rest", reading)
    assert (summarise(run), read) == (first, [])
    with run.journal.open("ab") as file:
        file.write(encode(h.steps(0, 131, 140, 10.0)) + encode(h.steps(1, 131, 140, 10.0)))
    assert (known(run).status.size, read) == (run.journal.stat().st_size, [0])
    # Another run of that name, a damaged file, and one that cannot be made are no harm.
    shutil.rmtree(run.path)
    record(tmp_path, NAME, h.running(last_step=58))
    assert summarise(run).summary.steps == 58
    kept.write_bytes(b"{")
    assert summarise(run).summary.steps == 58
    shutil.rmtree(kept.parent)
    kept.parent.touch()
    assert summarise(run).summary.steps == 58


def test_of_a_lost_run_each_rank_is_as_far_as_it_reported(tmp_path: Path) -> None:
    """Its last status knew the step that all had made; since then only the one behind has reported."""
    run = record(tmp_path, NAME, [*h.beginning(), h.steps(0, 1, 10, 1.0), h.steps(1, 1, 30, 1.5)])
    written(run)
    writer = JournalWriter(run.journal)
    writer.append([h.steps(0, 11, 40, 2.0)])
    writer.close()
    found = summarise(run).summary
    run.status.unlink()
    assert found == summarise(run).summary
    assert found.steps == 30
