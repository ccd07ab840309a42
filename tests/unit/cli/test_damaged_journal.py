"""40 MB of garbage in a journal: every verb and view says the same of the run as without it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.command_line import Command, Done
from tests.kit.recorded import record
from tests.kit.waiting import wait_until as until
from tuiapp.feeds.compare_feed import CompareFeed
from tuiapp.feeds.feed import JournalFeed, ReplayFeed
from tuiapp.trainers.contract.metrics import LOSS
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.curves import ALL
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.status import last_attempt
from tuiapp.trainers.state.summary import summarise

pytestmark = pytest.mark.nightly

GARBAGE = b"\x00" * 40_000_000

PLACES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "at the start": lambda lines: [GARBAGE + b"\n", *lines],
    "after the first line": lambda lines: [lines[0], GARBAGE + b"\n", *lines[1:]],
    "in the middle": lambda lines: [*lines[: len(lines) // 2], GARBAGE + b"\n", *lines[len(lines) // 2 :]],
    "before the last line": lambda lines: [*lines[:-1], GARBAGE + b"\n", lines[-1]],
    "at the end": lambda lines: [*lines, GARBAGE + b"\n"],
    "a short line at the end": lambda lines: [*lines, b"\x00\n"],
    "a torn tail": lambda lines: [*lines, GARBAGE],
}

HISTORIES = {"completed": h.completed, "lost": lambda: [*interrupted.stopped(), *interrupted.resumed()]}

VERBS = (
    ("runs", "--json"),
    ("show", "latest", "--json"),
    ("export", "latest"),
    ("export", "latest", "--what", "samples", "--format", "jsonl"),
)


def damage(run: RunDir, place: str) -> None:
    run.journal.write_bytes(b"".join(PLACES[place](run.journal.read_bytes().splitlines(keepends=True))))


def without_size(done: Done) -> Done:
    return replace(done, out=re.sub(r'"journal_bytes": \d+', "", done.out))


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("place", PLACES)
def test_verbs_and_views_are_as_without_it(tuiapp: Command, runs_dir: Path, history: str, place: str) -> None:
    run = record(runs_dir, h.RUN_ID, HISTORIES[history]())
    said, seen, state = [tuiapp(*verb) for verb in VERBS], views(run), fold(JournalFeed(run))
    assert json.loads(said[0].out)[0]["status"] == history
    run.journal.write_bytes(b"".join(PLACES[place](run.journal.read_bytes().splitlines(keepends=True))))
    for verb, before in zip(VERBS, said, strict=True):
        assert without_size(tuiapp(*verb)) == without_size(before), verb
    assert views(run) == seen
    assert shown(fold(JournalFeed(run))) == shown(state)


def fold(feed: JournalFeed) -> RunState:
    """What the Run screen knows once all is read."""
    state = RunState()

    def all_taken() -> bool:
        for event in feed.take(1000):
            apply(state, event)
        return feed.reading is None

    feed.start()
    until(all_taken)
    feed.close()
    return state


def shown(state: RunState) -> tuple[object, ...]:
    """What a screen shows of the run."""
    curves = {
        (rank, name): state.curves[rank, name].means().tolist() for rank in state.ranks for name in state.curves.names
    }
    log = [(entry.time, entry.text) for entry in state.log]
    return state.status, state.step, state.ended, state.checkpoints, log, state.gaps.spans, curves


def views(run: RunDir) -> tuple[int, float, float, list[float]]:
    """The number of attempts, the replay's first moment and length, and the loss that Compare draws."""
    replay = ReplayFeed(run)
    replay.start()
    until(lambda: bool(replay.take(1)))
    # Its clock must not go on between two looks at it.
    replay.toggle_pause()
    replay.close()
    compare = CompareFeed([summarise(run)])
    compare.start()
    until(lambda: compare.runs[0].progress is None)
    compare.close()
    series = compare.runs[0].curves[ALL, LOSS]
    return last_attempt(run), round(replay.now - replay.position, 3), replay.duration, series.means().tolist()
