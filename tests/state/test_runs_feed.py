"""Runs are looked for in a thread; what did not change is not told."""

from __future__ import annotations

import time
from pathlib import Path

from tests import histories as h
from tests.contract.recorded import record
from tuiapp.feeds.runs_feed import Listing, RunsFeed


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
    feed.look_now()
    assert [info.directory for info in taken(feed).infos] == [run]
    assert feed.take() is None
    feed.close()
    feed._thread.join(30)
    assert not feed._thread.is_alive()


def test_what_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    feed = RunsFeed(tmp_path / "runs")
    feed.start()
    assert "Not a directory" in taken(feed).problem
    feed.close()
