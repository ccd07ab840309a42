"""Runs are looked for in a thread; what did not change is not told."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.kit import histories as h
from tests.kit.recorded import record
from tuiapp.feeds.runs_feed import SHOW_S, Listing, RunsFeed
from tuiapp.library import run_index
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.summary import RunInfo, summarise


def taken(feed: RunsFeed) -> Listing:
    deadline = time.monotonic() + 30
    while (found := feed.take()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return found


def test_new_runs_are_told_of_at_once_when_asked(tmp_path: Path) -> None:
    feed = RunsFeed(tmp_path / "runs", poll_s=60)
    feed.start()
    assert taken(feed) == Listing([])
    run = record(tmp_path / "runs", "20261120T101500-torch-ddp-net-3fa1", h.completed())
    feed.poll_now()
    assert [info.directory for info in taken(feed).infos] == [run]
    assert feed.take() is None
    feed.close()
    feed._thread.join(30)
    assert not feed._thread.is_alive()


def test_a_list_fills_while_the_directory_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        record(tmp_path, f"20261120T10150{number}-torch-ddp-net-3fa1", h.completed())
    gate = threading.Semaphore(0)

    def slow(run: RunDir) -> RunInfo:
        gate.acquire()
        time.sleep(SHOW_S)
        return summarise(run)

    monkeypatch.setattr(run_index, "summarise", slow)
    feed = RunsFeed(tmp_path, poll_s=60)
    feed.start()
    for count in (1, 2):
        gate.release()
        listing = taken(feed)
        assert [info.directory.run_id[14] for info in listing.infos] == ["2", "1"][:count]
        assert not listing.complete
    gate.release()
    while not (listing := taken(feed)).complete:
        pass
    assert len(listing.infos) == 3
    feed.close()


def test_what_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    feed = RunsFeed(tmp_path / "runs")
    feed.start()
    assert "Not a directory" in taken(feed).problem
    feed.close()
