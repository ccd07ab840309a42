"""Which checkpoints a journal covers: journals made by hand, read backwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kit import histories as h
from tuiapp.trainers.contract.events import AnyEvent, LogLine, Metrics, encode
from tuiapp.trainers.contract.journal import MAX_LINE_BYTES, READ_BYTES
from tuiapp.trainers.state import resume_point

Journal = list[AnyEvent]


def attempt(number: int, resumed_from: int, *parts: AnyEvent) -> Journal:
    return [h.started(attempt=number, resumed_from=resumed_from), *parts]


def both(first: int, last: int) -> Journal:
    return [h.steps(rank, first, last, 1.0) for rank in (0, 1)]


def saved(step: int) -> AnyEvent:
    return h.checkpoint(step, 1.0)


def named(rank: int) -> AnyEvent:
    return Metrics(rank=rank, first_step=29, values={"train/ppl": [3.0]})


def covered(journal: Path, events: Journal, *checkpoints: int, tail: bytes = b"") -> list[int]:
    journal.write_bytes(b"".join(map(encode, events)) + tail)
    return list(resume_point.covered_steps(journal, dict.fromkeys(checkpoints, 2)))


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


FIRST = attempt(1, 0, *both(1, 29), saved(29), *both(30, 58), saved(58), *both(59, 70))
"""An attempt whose supervisor died after step 70; its ranks went on to step 116."""

CASES: dict[str, tuple[Journal, tuple[int, ...], list[int]]] = {
    "the newest first": (FIRST, (29, 58), [58, 29]),
    "an evaluation is no step": ([*FIRST[:-1], h.evaluation(3, 4.0), saved(87)], (58, 87), [58]),
    "metrics of any name": (attempt(1, 0, named(0), named(1), saved(29)), (29,), [29]),
    "what the journal never heard of": (FIRST, (29, 58, 87, 116), [58, 29]),
    "steps without the commit": (FIRST[:-3] + FIRST[-2:], (29, 58), [29]),
    "a rank that lags": ([*FIRST[:5], h.steps(0, 30, 58, 1.0), saved(58)], (29, 58), [29]),
    "a rank that lags, and is read later": (
        attempt(1, 0, h.steps(0, 1, 29, 1), saved(29), h.steps(1, 1, 20, 1), h.steps(1, 21, 40, 1)),
        (29,),
        [29],
    ),
    "a rank that told nothing": (attempt(1, 0, h.steps(0, 1, 29, 1.0), saved(29)), (29,), []),
    "a checkpoint told of while later steps were made": (attempt(1, 0, *both(1, 40), saved(29)), (29,), [29]),
    "several told of at once": (attempt(1, 0, *both(1, 90), saved(29), saved(58)), (29, 58, 87), [58, 29]),
    "cut off by hand": (FIRST[:2], (58, 87), []),
    "without a beginning": (FIRST[3:], (58, 87), [58]),
    "no journal to speak of": ([], (29,), []),
    "resumed, and nothing since": (FIRST + attempt(2, 58), (29, 58, 87), [58, 29]),
    "resumed, and on": (FIRST + attempt(2, 58, *both(59, 87), saved(87)), (29, 58, 87), [87, 58, 29]),
    "gone back behind one": (FIRST + attempt(2, 29, *both(30, 40)), (29, 58), [29]),
    "gone back, and it is committed anew without a word": (FIRST + attempt(2, 29, *both(30, 60)), (29, 58), [29]),
    "gone back, and it is told of anew": (FIRST + attempt(2, 29, *both(30, 58), saved(58)), (29, 58), [58, 29]),
    "gone back twice": (FIRST + attempt(2, 58, *both(59, 87), saved(87)) + attempt(3, 29), (29, 58, 87), [29]),
    "resumed over a gap": (FIRST + attempt(2, 116), (58, 116), [116, 58]),
    "resumed over a gap, and on": (FIRST + attempt(2, 116, *both(117, 145), saved(145)), (116, 145), [145, 116]),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("part", [7, 100, 1 << 18])
def test_what_is_covered(journal: Path, monkeypatch: pytest.MonkeyPatch, name: str, part: int) -> None:
    monkeypatch.setattr("tuiapp.trainers.contract.journal.READ_BYTES", part)
    events, checkpoints, wanted = CASES[name]
    assert covered(journal, events, *checkpoints) == wanted


@pytest.mark.nightly
def test_a_journal_torn_anywhere_covers_no_more_than_it_holds(journal: Path) -> None:
    whole = b"".join(map(encode, FIRST))
    commits = {step: whole.index(encode(saved(step))) + len(encode(saved(step))) for step in (29, 58)}
    for end in range(len(whole)):
        journal.write_bytes(whole[:end])
        found = list(resume_point.covered_steps(journal, {29: 2, 58: 2, 87: 2}))
        assert found == [step for step, committed in sorted(commits.items(), reverse=True) if committed <= end]


def test_damage_between_the_lines(journal: Path) -> None:
    odd = [b"\xff\xfe\n", b"[" * 5000 + b"\n", b'{"type":"steps","rank":"?"}\n', b'{"type":"later","step":3}\n', b"\n"]
    lines = [encode(event) for event in FIRST]
    journal.write_bytes(b"".join(line + odd[number % len(odd)] for number, line in enumerate(lines)) + b'{"type":"st')
    assert list(resume_point.covered_steps(journal, {29: 2, 58: 2, 87: 2})) == [58, 29]


def test_a_line_longer_than_any_event(journal: Path) -> None:
    long = b"x" * (MAX_LINE_BYTES + READ_BYTES + 1)
    for text in (long + b"\n", b'{"type":"checkpoint",' + long + b"\n", long):
        assert covered(journal, FIRST, 29, 58, tail=text) == [58, 29]
    lines = [encode(event) for event in FIRST]
    journal.write_bytes(long + b"\n" + b"".join(lines[:6]) + long + b"\n" + b"".join(lines[6:]))
    assert list(resume_point.covered_steps(journal, {29: 2, 58: 2})) == [58, 29]


def test_no_more_is_read_than_it_takes(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuiapp.trainers.contract.journal.READ_BYTES", 1 << 12)
    before = [LogLine(rank=0, stream="stdout", text="x" * 1000)] * 1000
    journal.write_bytes(b"".join(map(encode, [*attempt(1, 0, *both(1, 29), saved(29)), *before, *FIRST[1:]])))
    read: list[int] = []
    pread = os.pread

    def counted(fd: int, size: int, at: int) -> bytes:
        read.append(size)
        return pread(fd, size, at)

    monkeypatch.setattr(os, "pread", counted)
    assert next(resume_point.covered_steps(journal, {29: 2, 58: 2, 87: 2})) == 58
    assert sum(read) < journal.stat().st_size / 10 + (1 << 20)  # the search for the last newline takes up to 1 MiB
