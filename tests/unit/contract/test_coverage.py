"""Which checkpoints a journal covers: journals made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit import histories as h
from tuiapp.trainers.contract.events import AnyEvent, Metrics, encode
from tuiapp.trainers.contract.journal import MAX_LINE_BYTES, READ_BYTES
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.snapshot import read_run

Journal = list[AnyEvent]


def attempt(number: int, resumed_from: int, *parts: AnyEvent) -> Journal:
    return [h.started(attempt=number, resumed_from=resumed_from), *parts]


def both(first: int, last: int) -> Journal:
    return [h.steps(rank, first, last, 1.0) for rank in (0, 1)]


def saved(step: int) -> AnyEvent:
    return h.checkpoint(step, 1.0)


def named(rank: int) -> AnyEvent:
    return Metrics(rank=rank, first_step=29, values={"train/ppl": [3.0]})


def covered(run: RunDir, *checkpoints: int) -> list[int]:
    return [step for step in reversed(read_run(run).covered_checkpoints) if step in checkpoints]


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


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
def test_what_is_covered(run: RunDir, name: str) -> None:
    events, checkpoints, wanted = CASES[name]
    run.journal.write_bytes(b"".join(map(encode, events)))
    assert covered(run, *checkpoints) == wanted


@pytest.mark.nightly
def test_a_journal_torn_anywhere_covers_no_more_than_it_holds(run: RunDir) -> None:
    whole = b"".join(map(encode, FIRST))
    commits = {step: whole.index(encode(saved(step))) + len(encode(saved(step))) for step in (29, 58)}
    for end in range(len(whole)):
        run.journal.write_bytes(whole[:end])
        found = covered(run, 29, 58, 87)
        assert found == [step for step, committed in sorted(commits.items(), reverse=True) if committed <= end]


def test_damage_between_the_lines(run: RunDir) -> None:
    odd = [b"\xff\xfe\n", b"[" * 5000 + b"\n", b'{"type":"steps","rank":"?"}\n', b'{"type":"later","step":3}\n', b"\n"]
    lines = [encode(event) for event in FIRST]
    damaged = b"".join(line + odd[number % len(odd)] for number, line in enumerate(lines))
    for tail in (b'{"type":"st', b"x" * (MAX_LINE_BYTES + READ_BYTES + 1) + b"\n"):
        run.journal.write_bytes(damaged + tail)
        assert covered(run, 29, 58, 87) == [58, 29]
