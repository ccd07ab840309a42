"""The digest of a journal: what is kept, and that what is not whole is none."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from tests.kit import histories as h
from tests.kit.digest_runs import assert_same_series, history
from tests.kit.folding import fold
from tests.kit.reported import step_event
from tuiapp.trainers.contract.events import DeviceSample, Event, LogLine, RankSample, encode
from tuiapp.trainers.contract.metrics import LOSS, TEST_ACCURACY, TEST_LOSS
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state import digest_keeper
from tuiapp.trainers.state.curves import LEAST_BUCKETS, MAX_CURVES
from tuiapp.trainers.state.digest import MAGIC, MAX_BYTES, Digest, read_digest
from tuiapp.trainers.state.digest_keeper import DigestKeeper
from tuiapp.trainers.state.readings import MOST_GPUS
from tuiapp.trainers.state.series import Series
from tuiapp.trainers.state.timeline import Earlier
from tuiapp.view.devices.view import gpu_views


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


def assert_same_curves(one: Digest, other: Digest) -> None:
    curves, others = ({**each.curves, **each.utilization} for each in (one, other))
    for key in curves.keys() | others.keys():
        assert_same_series(curves.get(key, Series()), others.get(key, Series()))


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
    assert_same_curves(carried_on, whole)
    assert (carried_on.timeline.steps, carried_on.timeline.times) == (whole.timeline.steps, whole.timeline.times)
    assert carried_on.totals == whole.totals
    assert (carried_on.forgotten, log_of(carried_on)) == (whole.forgotten, log_of(whole))


def test_what_is_kept_is_bounded(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest_keeper, "LOG_LINES", 100)
    monkeypatch.setattr(digest_keeper, "ALL_BUCKETS", 3000)
    digest = digest_of(run, history(4, batches=6000))
    assert run.digest.stat().st_size < 1e6 < run.journal.stat().st_size / 5
    assert sum(map(len, digest.curves.values())) <= 3000
    assert len(log_of(digest)) <= 100
    assert digest.forgotten > 1000
    for kind in (RankSample, DeviceSample):
        assert 100 < sum(isinstance(event, kind) for event in digest.events) <= 3 * 2 * digest_keeper.HISTORY


@pytest.mark.nightly
def test_with_hundreds_of_ranks_curves_have_enough_points_for_a_chart(run: RunDir) -> None:
    ranks = range(512)
    events = [step_event(rank, first, [1.0] * 100, examples=1) for first in range(1, 2000, 100) for rank in ranks]
    digest = digest_of(run, events)
    # Those of a chart at 120 columns.
    assert min(len(digest.curves[rank, LOSS]) for rank in ranks) >= 60
    assert run.digest.stat().st_size < 30e6


@pytest.mark.nightly
def test_with_hundreds_of_gpus_their_curves_are_bounded_and_kept_so(run: RunDir) -> None:
    """Each had as many points as of a single GPU: after a quarter of an hour they were half of a digest of 45 MB."""
    gpus = range(512)
    events: list[Event] = []
    for step in range(1, 301):
        events.append(step_event(0, step, [1.0]))
        events += [
            DeviceSample(index=gpu, uuid=f"GPU-{gpu}", name="NVIDIA H200", utilization_percent=90.0) for gpu in gpus
        ]
    curves = digest_of(run, events).utilization
    assert min(map(len, curves.values())) >= LEAST_BUCKETS / 2
    assert sum(map(len, curves.values())) <= 80_000
    restored = DigestKeeper(read_digest(run)).curves.utilization
    assert restored["GPU-511"].series.capacity == LEAST_BUCKETS


def test_the_largest_digest_is_one() -> None:
    one = Series()
    one.add([1], [1.0])
    bucket = sum(map(len, one.parts[2:]))
    assert (MAX_CURVES + MOST_GPUS) * LEAST_BUCKETS * bucket < MAX_BYTES


def test_log_lines_are_bounded_by_their_bytes(run: RunDir) -> None:
    lines = [LogLine(rank=0, stream="stdout", text=f"{number} " + 8000 * "x") for number in range(1000)]
    digest = digest_of(run, lines)
    assert log_of(digest) == [line.text for line in lines][-len(log_of(digest)) :]
    assert 200 < len(log_of(digest)) < 300
    assert digest.forgotten == 1000 - len(log_of(digest))


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


@pytest.mark.parametrize("version", [b"4", b"6"])
def test_a_digest_of_another_version_is_none(run: RunDir, version: bytes) -> None:
    digest_of(run, history(1))
    run.digest.write_bytes(run.digest.read_bytes().replace(MAGIC, MAGIC.replace(b"5", version), 1))
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


@pytest.mark.parametrize("more", [0, 2 * digest_keeper.HISTORY])
def test_errors_of_a_gpu_are_counted_from_the_first_sample(run: RunDir, more: int) -> None:
    """However many samples have come since that one."""
    samples = [
        msgspec.structs.replace(h.device_sample(0, float(n)), ecc_uncorrected=40 + (n > 0)) for n in range(2 + more)
    ]
    condition = gpu_views(fold([digest_of(run, [*h.beginning(1, gpus=True), *samples])]))[0].condition
    assert condition is not None
    assert condition.text == "1 ECC error"


@pytest.mark.parametrize("restored", [False, True])
def test_what_earlier_attempts_count_for(run: RunDir, restored: bool) -> None:
    """All up to the step from which the present one resumes; each attempt's first epoch says nothing of the speed."""
    first = h.running(last_step=100)
    digest_of(run, first)
    keeper = DigestKeeper(read_digest(run) if restored else None)
    for event in [] if restored else first:
        keeper.add(event, encode(event))
    assert keeper.curves.earlier == Earlier()

    def resume(attempt: int, step: int | None, seconds: float) -> Earlier:
        begun = h.started(attempt=attempt, resumed_from=step, seconds=seconds)
        keeper.add(begun, encode(begun))
        return keeper.curves.earlier

    found = resume(2, 58, 60)
    evaluations = [h.evaluation(epoch, 0).values for epoch in (1, 2)]
    best = (min(one[TEST_LOSS][0] or 0 for one in evaluations), max(one[TEST_ACCURACY][0] or 0 for one in evaluations))
    assert found.evaluated[:2] == best
    assert found.timed_steps == 29
    assert found.seconds == pytest.approx(4.9)
    assert found.timed_seconds == pytest.approx(29 * 0.05)
    for rank in range(2):
        event = h.steps(rank, 59, 118, 70.0, pace=0.1)
        keeper.add(event, encode(event))
    # 31 of its 60 steps are beyond its first epoch, and all of it counts as long as it is not known from where on.
    found = resume(3, None, 200)
    assert found.timed_steps == 29 + 31
    assert found.seconds == pytest.approx(4.9 + 10)
    assert found.timed_seconds == pytest.approx(29 * 0.05 + 31 * 0.1)
    assert resume(4, 0, 300) == Earlier()
