"""A run whose Slurm job waits: what its screen says and offers."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit import node_histories as nodes
from tests.kit.digest_runs import digest_of
from tests.kit.folding import fold
from tests.kit.recorded import record
from tests.kit.run_app import LARGE, RunApp, settled
from tuiapp.screens.quit import _live_question
from tuiapp.screens.run_panels import is_alone
from tuiapp.trainers.contract.events import Alert, Queued, encode
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.summary import summarise

REQUEUED = Queued(job="12", reason="BeginTime", start="2026-11-20T11:30:00", **h.at(20.0))


def screen_lines(app: RunApp) -> list[str]:
    return ["".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips()]


@pytest.mark.nightly
@pytest.mark.parametrize("whole", [True, False])
async def test_it_waits_again_once_it_was_requeued(tmp_path: Path, whole: bool) -> None:
    events = [nodes.queued(), *interrupted.stopped()]
    app = RunApp([*(events if whole else [digest_of(RunDir(tmp_path), events)]), REQUEUED])
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        lines = screen_lines(app)
        assert re.match(r" ◌ QUEUED +Slurm job 12 is queued · BeginTime", lines[0])
        assert "waiting " in lines[2]
        assert not any(" ETA " in line or "examples/s" in line for line in lines[:3])
        assert "Save" not in lines[-1]
        assert any("nothing to sample before it starts" in line for line in lines)
        assert sum("◌ queued" in line for line in lines) == 2


def test_lists_know_what_a_requeued_run_has_reached(tmp_path: Path) -> None:
    events = [nodes.queued(), *interrupted.stopped()]
    run = record(tmp_path, "20261120T101500-torch-ddp-net-3fa1", [*events, REQUEUED])
    lock = run.take_lock()
    try:
        info = summarise(run)
        assert (info.status, info.summary.steps) == ("queued", 72)
        assert info.summary.epochs is not None
        assert info.started == events[1].time
    finally:
        os.close(lock)


def test_lists_say_why_it_waits(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    trouble = Alert(kind="slurm", text="Slurm does not answer", **h.at(9.0))
    run.journal.write_bytes(encode(nodes.queued()) + encode(trouble))
    lock = run.take_lock()
    try:
        info = summarise(run)
        assert info.status == "queued"
        assert info.summary.seconds >= 0
        assert info.reason == "Slurm job 12 is queued · Resources · expected to start 2026-11-20 11:30:00"
        question = _live_question([run])
        assert question
        assert question.title == "A run is queued"
    finally:
        os.close(lock)


def test_only_one_rank_that_is_known_is_alone() -> None:
    waits, one = fold([nodes.queued()]), fold(h.running(1))
    waits.config["platform"] = one.config["platform"] = "cpu"
    assert [is_alone(waits), is_alone(one), is_alone(fold(h.running(2)))] == [False, True, False]
