"""Compaction: what a run has come to stays, its journal becomes small, and no failure costs any of it."""

from __future__ import annotations

import math
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit import histories as h
from tests.kit.recorded import record
from tests.kit.reported import evaluation_event, step_event
from tuiapp.actions.action import ActionError
from tuiapp.actions.compact import compact
from tuiapp.cli import main
from tuiapp.library import compaction
from tuiapp.trainers.config.run_config import RunConfig, to_toml_values
from tuiapp.trainers.contract.events import AnyEvent, LogLine, Metrics, RunStarted, decode, encode
from tuiapp.trainers.contract.journal import JournalReader
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.curves import Curves
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.snapshot import new_state, save
from tuiapp.trainers.state.status import known
from tuiapp.trainers.state.summary import summarise

NAME = "20261119T101500-torch-ddp-net-3fa1"
SCRIPT = RunConfig(backend="script", script="train.py")


def folded(run: RunDir) -> RunState:
    state = RunState()
    for event in JournalReader(run.journal).rest():
        apply(state, event)
    return state


def facts(state: RunState) -> object:
    """What must not change."""
    curves = state.curves
    of_curves = {
        (rank, name): (series.last, series.last_step, series.bounds, series.first_step, series.is_finite)
        for rank, name, series in curves
        if name not in ("step_time", "data_wait", "examples", "examples_per_second")
    }
    epochs = [(row.number, row.steps, row.of, row.test_accuracy) for row in curves.last_epochs()]
    ranks = {number: (rank.step, rank.last_time) for number, rank in state.ranks.items()}
    return of_curves, epochs, ranks, curves.gaps.spans, bool(curves.zero), state.steps_done, state.covered_checkpoints


def script(values: Callable[[int], dict[str, float | None]], steps: int, *, rows: int = 1) -> list[AnyEvent]:
    begun = RunStarted(run_id="a", host="", pid=1, config=to_toml_values(SCRIPT), world_size=1, **h.at(0))
    events: list[AnyEvent] = [begun]
    for first in range(0, steps, rows):
        columns = {name: [values(step)[name] for step in range(first, first + rows)] for name in values(first)}
        events.append(Metrics(rank=0, first_step=first, values=columns, **h.at(first)))
        if first % 100 == 0:
            events.append(LogLine(rank=0, stream="stdout", text="x", **h.at(first)))
    return [*events, h.ended("completed", steps, step=steps)]


def built_in(steps: int) -> list[AnyEvent]:
    events: list[AnyEvent] = [h.started(2)]
    for first in range(1, steps, 29):
        for rank in range(2):
            losses = [math.sin(step) + 1 / step for step in range(first, first + 29)]
            events.append(step_event(rank, first, losses, seconds=0.01, examples=32, **h.at(first / 100)))
        events.append(evaluation_event(first + 28, 1 / first, 1 - 1 / first, **h.at(first / 100)))
    return [*events, h.ended("completed", steps / 100, step=steps)]


def broken(step: int) -> dict[str, float | None]:
    return {"loss": None if step in (700, 701) else math.inf if step == 900 else step / 3.0}


HISTORIES: dict[str, Callable[[], list[AnyEvent]]] = {
    "a row a line": lambda: script(lambda step: {"loss": math.sin(step), "epoch": step // 100.0}, 3000),
    "many rows a line": lambda: script(lambda step: {"a/loss": math.cos(step) * step}, 30_000, rows=500),
    "not finite": lambda: script(broken, 3000),
    "built in": lambda: built_in(29 * 100),
}


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_what_the_run_came_to_stays(
    tmp_path: Path, history: Callable[[], list[AnyEvent]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "ENTRIES", 256)
    config = SCRIPT if len(history()) and history()[0].config["backend"] == "script" else None  # type: ignore[union-attr]
    run = record(tmp_path, NAME, history(), *([config] if config else []))
    others = [line for line in run.journal.read_bytes().splitlines() if not line.startswith(compaction._METRICS)]
    before, was = facts(folded(run)), summarise(run)
    save(run, new_state(), 0, b"")
    old, size = compact(run)
    assert size < 0.6 * old
    assert facts(folded(run)) == before
    now = summarise(run)
    assert (now.summary.steps, now.summary.seconds, now.summary.loss) == (
        was.summary.steps,
        was.summary.seconds,
        was.summary.loss,
    )
    assert now.journal_bytes == size == run.journal.stat().st_size == known(run).status.size
    left = [line for line in run.journal.read_bytes().splitlines() if not line.startswith(compaction._METRICS)]
    assert left[:-1] == others[:-1]
    assert not run.digest.exists()
    assert ["joined"] * bool(config) == [one.kind for one in now.blemishes]
    entries = sum(
        len(one)
        for one in JournalReader(run.journal).rest()
        if isinstance(one, Metrics) and one.rank == 0 and one.is_training
    )
    assert 200 < entries < 600
    again, same = compact(run)
    assert again == same


values = st.floats(allow_nan=False, width=32) | st.none()


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "ab"]), st.integers(0, 60), values, values),
        min_size=1,
        max_size=30,
        unique_by=lambda report: report[1],
    )
)
def test_any_order_and_values(reports: list[tuple[str, int, float | None, float | None]]) -> None:
    begun = RunStarted(run_id="a", host="", pid=1, config=to_toml_values(SCRIPT), world_size=1, **h.at(0))
    plain, joined = Curves(), Curves()
    joiner = compaction._Joiner({(0, tuple(names)): 5 for names in ("a", "b", "ab")})
    joiner.begin(begun)
    plain.fold([begun])
    joined.fold([begun])
    for names, step, *found in reports:
        columns = {name: [value] for name, value in zip(names, found, strict=False)}
        signs = {
            name: {0: int(math.copysign(1, value))} for name, (value,) in columns.items() if value and math.isinf(value)
        }
        event = Metrics(rank=0, first_step=step, values=columns, infinite=signs or None)
        plain.fold([event])
        joined.fold(filter(None, map(decode, joiner.add(event, encode(event)))))
    joined.fold(filter(None, map(decode, joiner.flush())))
    for name in "ab":
        one, other = (curves[0, name] for curves in (plain, joined))
        assert (one.last_step, one.bounds, repr(one.last)) == (other.last_step, other.bounds, repr(other.last))


def test_a_live_run_and_a_full_disk_leave_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compaction, "ENTRIES", 16)
    run = record(tmp_path / "runs", NAME, built_in(29 * 30))
    content = run.journal.read_bytes()
    lock = run.take_lock()
    with pytest.raises(ActionError, match="is running"):
        compact(run)
    os.close(lock)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
    try:
        with pytest.raises(ActionError, match="is as it was: File too large"):
            compact(run)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert run.journal.read_bytes() == content
    assert [*run.path.glob("events*")] == [run.journal]
    assert main(["compact", str(run.path), "--yes"]) == 0
    assert "KiB, now " in capsys.readouterr().err


KILLED = """
import os, sys
from pathlib import Path
from tuiapp.actions import compact
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.library import compaction
compaction.ENTRIES = 16
plain = compact.compacted
def dying(journal):
    for number, line in enumerate(plain(journal)):
        if number == 50:
            os.kill(os.getpid(), 9)
        yield line
compact.compacted = dying
compact.compact(RunDir(Path(sys.argv[1])))
"""


def test_killed_in_the_middle_it_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = record(tmp_path, NAME, built_in(29 * 30))
    content, was = run.journal.read_bytes(), summarise(run)
    assert subprocess.run([sys.executable, "-c", KILLED, str(run.path)], check=False).returncode == -9
    assert run.journal.read_bytes() == content
    assert summarise(run) == was
    monkeypatch.setattr(compaction, "ENTRIES", 16)
    old, size = compact(run)
    assert size < old == len(content)
    assert [*run.path.glob("events*")] == [run.journal]
