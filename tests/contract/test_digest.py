"""The digest of a journal: what is kept, and that what is not whole is none."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import msgspec
import pytest

from tests.contract.digest_runs import history
from trainers.contract import digest as of_digest
from trainers.contract import digest_keeper
from trainers.contract.curve import Curve
from trainers.contract.digest import MAGIC, Digest, read_digest, write_digest
from trainers.contract.digest_keeper import DigestKeeper
from trainers.contract.events import DeviceSample, Event, LogLine, Metrics, RankSample, RunStarted, encode
from trainers.contract.metrics import RATE
from trainers.contract.rundir import RunDir


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


def write_journal(run: RunDir, events: Sequence[Event]) -> list[bytes]:
    lines = [encode(event) for event in events]
    run.journal.write_bytes(b"".join(lines))
    return lines


def digest_of(run: RunDir, events: Sequence[Event]) -> Digest:
    """Writes a journal and its digest, and reads that."""
    keeper, lines = DigestKeeper(), write_journal(run, events)
    for event, line in zip(events, lines, strict=True):
        keeper.add(event, line)
    keeper.write(run, sum(map(len, lines)))
    digest = read_digest(run)
    assert digest is not None
    return digest


def curves_of(digest: Digest) -> dict[object, object]:
    curves: list[tuple[object, Curve]] = [*digest.curves.items(), *digest.utilization.items()]
    return {
        key: (curve.width, curve.first_step, curve.last_step, [column.tobytes() for column in curve.columns])
        for key, curve in curves
        if len(curve)
    }


def log_of(digest: Digest) -> list[str]:
    return [event.text for event in digest.events if isinstance(event, LogLine)]


@pytest.mark.parametrize("seed", range(12))
def test_a_digest_carried_on_is_that_of_the_whole_journal(run: RunDir, seed: int) -> None:
    dice, events = random.Random(seed), history(seed)
    whole = digest_of(run, events)
    cut = dice.randint(1, len(events) - 1)
    keeper = DigestKeeper(digest_of(run, events[:cut]))
    lines = write_journal(run, events)
    for event, line in zip(events[cut:], lines[cut:], strict=True):
        keeper.add(event, line)
    keeper.write(run, run.journal.stat().st_size)
    carried_on = read_digest(run)
    assert carried_on is not None
    assert curves_of(carried_on) == curves_of(whole)
    assert (carried_on.timeline.steps, carried_on.timeline.times) == (whole.timeline.steps, whole.timeline.times)
    assert carried_on.effort == whole.effort
    assert (carried_on.forgotten, log_of(carried_on)) == (whole.forgotten, log_of(whole))


def test_what_is_kept_is_bounded(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest_keeper, "LOG_LINES", 100)
    monkeypatch.setattr(digest_keeper, "ALL_BUCKETS", 3000)
    digest = digest_of(run, history(1, batches=6000))
    assert run.digest.stat().st_size < 1e6 < run.journal.stat().st_size / 5
    assert sum(map(len, digest.curves.values())) <= 3000
    assert len(log_of(digest)) <= 100
    assert digest.forgotten > 1000
    for kind in (RankSample, DeviceSample):
        assert 100 < sum(isinstance(event, kind) for event in digest.events) <= 3 * 2 * digest_keeper.HISTORY


def test_log_lines_are_bounded_by_their_bytes(run: RunDir) -> None:
    lines = [LogLine(rank=0, stream="stdout", text=f"{number} " + 8000 * "x") for number in range(1000)]
    digest = digest_of(run, lines)
    assert log_of(digest) == [line.text for line in lines][-len(log_of(digest)) :]
    assert 200 < len(log_of(digest)) < 300
    assert digest.forgotten == 1000 - len(log_of(digest))


def test_higher_ranks_have_fewer_buckets(run: RunDir) -> None:
    started = RunStarted(
        run_id="x", host="box", pid=1, config={}, world_size=64, steps_per_epoch=10, total_steps=20_000
    )
    values: dict[str, list[float | None]] = {"loss": [1.0] * 20, "examples": [32.0] * 20, "step_time": [0.1] * 20}
    events = [
        Metrics(rank=rank, first_step=first, values=values, time=1e9 + first)
        for first in range(1, 20_000, 20)
        for rank in range(0, 64, 7)
    ]
    digest = digest_of(run, [started, *events])
    sizes = [len(digest.curves[rank, "loss"]) for rank in range(0, 64, 7)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 4 * sizes[-1] > 100
    rate = digest.curves[0, RATE]
    assert rate.total[0] / rate.count[0] == pytest.approx(320)


def test_a_damaged_digest_is_none(run: RunDir) -> None:
    digest_of(run, history(1))
    whole, dice = run.digest.read_bytes(), random.Random(1)
    assert read_digest(run)
    for length in [0, 1, 15, 16, 24, 25, len(whole) - 1, *(dice.randrange(len(whole)) for _ in range(100))]:
        run.digest.write_bytes(whole[:length])
        assert read_digest(run) is None, length
    for place in [*range(60), *(dice.randrange(len(whole)) for _ in range(200))]:
        run.digest.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << dice.randrange(8)]) + whole[place + 1 :])
        assert read_digest(run) is None, place
    run.digest.write_bytes(whole + b"x")
    assert read_digest(run) is None
    run.digest.unlink()
    assert read_digest(run) is None
    run.digest.mkdir()
    assert read_digest(run) is None


@pytest.mark.parametrize("version", [b"0", b"2"])
def test_a_digest_of_another_version_is_none(run: RunDir, version: bytes) -> None:
    digest_of(run, history(1))
    run.digest.write_bytes(run.digest.read_bytes().replace(MAGIC, MAGIC.replace(b"1", version), 1))
    assert read_digest(run) is None


def test_a_digest_of_another_journal_is_none(run: RunDir) -> None:
    events = history(1)
    digest_of(run, events)
    journal = run.journal.read_bytes()
    run.journal.write_bytes(journal + b'{"type":"lo')
    assert read_digest(run)
    last = journal.rindex(b"\n", 0, -1) + 1
    for other in (b"", journal[:last], journal[:-1], journal[: last + 9] + b"7" + journal[last + 10 :]):
        run.journal.write_bytes(other)
        assert read_digest(run) is None
    write_journal(run, history(2, batches=200))
    assert read_digest(run) is None
    run.journal.unlink()
    assert read_digest(run) is None


def test_numbers_of_nothing_are_refused_though_the_sums_are_right(run: RunDir) -> None:
    whole = digest_of(run, history(1))
    lines = [encode(event) for event in whole.events]
    last = run.journal.read_bytes().splitlines(keepends=True)[-1]

    def is_refused() -> bool:
        write_digest(run, whole, lines, 0, last)
        return read_digest(run) is None

    assert not is_refused()
    curve = whole.curves[0, "loss"]
    width, first, key, high, total = curve.width, curve.first_step, curve.keys[1], curve.high[1], curve.total[1]
    for wrong in (0, -1, 3, 2**60):
        curve.width = wrong
        assert is_refused()
    curve.width = width
    curve.first_step = -1
    assert is_refused()
    curve.first_step, curve.keys[1] = first, curve.keys[0]
    assert is_refused()
    curve.keys[1], curve.count[1] = key, max(1, curve.count[1])
    for nonsense in (float("nan"), float("inf"), 3e38):
        curve.high[1] = nonsense
        assert is_refused()
    curve.high[1], curve.total[1] = high if abs(high) < 9 else 0.0, float("nan")
    assert is_refused()
    curve.total[1] = total
    curve.last[1], curve.first[1], curve.low[1] = 0.0, 0.0, 0.0
    assert not is_refused()
    whole.timeline.steps[0] = 5
    assert is_refused()
    whole.timeline.steps[0] = 0
    whole.effort.energy_j = float("inf")
    assert is_refused()
    whole.effort.energy_j = 0.0
    whole.curves[5000, "loss"] = curve
    assert is_refused()


def test_lengths_that_lie_are_refused(run: RunDir) -> None:
    digest_of(run, history(1))
    whole = run.digest.read_bytes()
    start = len(MAGIC) + 8
    length = int.from_bytes(whole[len(MAGIC) + 4 : start], "little")
    heading = of_digest._headings.decode(whole[start : start + length])
    for changed in (
        msgspec.structs.replace(heading, events_bytes=2**40),
        msgspec.structs.replace(heading, events_bytes=-1),
        msgspec.structs.replace(heading, marks=0),
        msgspec.structs.replace(heading, marks=2**62),
        msgspec.structs.replace(heading, offset=2**62),
        msgspec.structs.replace(heading, offset=-1),
        msgspec.structs.replace(heading, line_bytes=0),
        msgspec.structs.replace(heading, curves=heading.curves[1:]),
    ):
        packed = msgspec.msgpack.encode(changed)
        rest = packed + whole[start + length :]
        sums = crc32(rest).to_bytes(4, "little") + len(packed).to_bytes(4, "little")
        run.digest.write_bytes(MAGIC + sums + rest)
        assert read_digest(run) is None
