"""Which checkpoints rank 0 is told of: those that the journal covers, once it does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kit import histories as h
from tests.kit.fake_ranks import NotingRank
from tuiapp.trainers.contract.journal import JournalWriter
from tuiapp.trainers.run import wire
from tuiapp.trainers.run.journal_keeper import CheckpointAck


def test_told_once_all_ranks_steps_are_there(tmp_path: Path) -> None:
    recorder, writer = CheckpointAck(JournalWriter(tmp_path / "events.jsonl")), NotingRank(0)
    recorder.report_covered(29, writer)
    recorder.add(h.checkpoint(29, 1.0))
    recorder.add(h.checkpoint(58, 2.0))
    recorder.report_covered(28, writer)
    assert writer.told == []
    recorder.report_covered(30, writer)
    recorder.report_covered(57, writer)
    assert writer.told == [wire.Recorded(29)]
    recorder.report_covered(60, None)
    recorder.report_covered(61, writer)
    assert writer.told == [wire.Recorded(29)]


def test_not_while_the_journal_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, writer = JournalWriter(tmp_path / "events.jsonl"), NotingRank(0)
    recorder = CheckpointAck(journal)
    recorder.add(h.checkpoint(29, 1.0))
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        journal.append([h.checkpoint(29, 1.0)])
    recorder.report_covered(29, writer)
    assert writer.told == []
    journal.flush()
    recorder.report_covered(29, writer)
    assert writer.told == [wire.Recorded(29)]
