"""Why ranks ended, in words, which failure came first, and what the kernel tells of its out-of-memory killer."""

from __future__ import annotations

import random
import subprocess
import sys
import traceback
from pathlib import Path

import msgspec
import pytest

from tuiapp.trainers.config.files import printable
from tuiapp.trainers.contract.events import RankFailed
from tuiapp.trainers.run import wire
from tuiapp.trainers.run.rank_end import (
    KEEP_S,
    OomWatch,
    describe_exit,
    first_cause,
    is_consequence,
    left_early,
    rank_error,
)
from tuiapp.trainers.state.messages import describe_failure


def failed(rank: int, mono: float, *, consequence: bool = False) -> tuple[RankFailed, bool]:
    return RankFailed(rank=rank, mono=mono), consequence


@pytest.mark.parametrize(
    ("failures", "rank"),
    [
        ([failed(0, 5.0)], 0),
        ([failed(0, 5.0), failed(1, 4.0)], 1),
        # A collective's error may be raised, or seen, before what it follows from.
        ([failed(0, 4.0, consequence=True), failed(1, 5.0)], 1),
        ([failed(0, 4.0, consequence=True), failed(1, 5.0), failed(2, 4.5), failed(3, 3.0, consequence=True)], 2),
        ([failed(0, 4.0, consequence=True), failed(1, 3.0, consequence=True)], 1),
    ],
)
def test_the_first_cause(failures: list[tuple[RankFailed, bool]], rank: int) -> None:
    for seed in range(5):
        random.Random(seed).shuffle(failures)
        assert first_cause(failures).rank == rank


TIMEOUT = "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 6000ms for recv operation"


@pytest.mark.parametrize(
    ("failures", "left", "rank"),
    [
        ([(RankFailed(rank=0, mono=9.0, error=TIMEOUT), True)], {1: 8.0, 2: 5.0}, 2),
        # It takes longer to end than the others to notice.
        ([(RankFailed(rank=0, mono=9.0, error=TIMEOUT), True)], {1: 9.5}, 1),
        ([(RankFailed(rank=0, error="RuntimeError: x", traceback="distributed_c10d.py"), True)], {1: 8.0}, 1),
        ([(RankFailed(rank=0, error=TIMEOUT), True)], {}, None),
        # Another rank is the cause.
        ([(RankFailed(rank=0, error=TIMEOUT), True), failed(2, 9.0)], {1: 8.0}, None),
        # A server elsewhere is gone.
        ([(RankFailed(rank=0, error="ConnectionError: Connection reset by peer"), True)], {1: 8.0}, None),
        ([], {1: 8.0}, None),
    ],
)
def test_a_rank_that_ended_while_others_waited_for_it(
    failures: list[tuple[RankFailed, bool]], left: dict[int, float], rank: int | None
) -> None:
    early = left_early(failures, left)
    assert (early.rank if early else None) == rank
    if early:
        why = "while rank 0 waited for it in a collective: RuntimeError: "
        assert describe_failure(early).startswith(f"rank {rank} exited with code 0, {why}")


@pytest.mark.parametrize(
    "error",
    [
        TIMEOUT,
        "c10::DistBackendError: [Rank 0] Watchdog caught collective operation timeout",
        "RuntimeError: [Rank 0]: Ranks 1 failed to pass monitoredBarrier in 6000 ms",
        "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: end",
        "XlaRuntimeError: UNAVAILABLE: no heartbeats reach the coordination service",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:94",
        "torch.distributed.DistStoreError: wait timeout after 1000ms",
        "RuntimeError: Broken pipe",
        "RuntimeError: Connection reset by peer",
    ],
)
def test_what_collectives_raise_when_a_rank_is_gone(error: str) -> None:
    assert is_consequence(error)


@pytest.mark.parametrize(
    "error",
    [
        "ValueError: global batch of 7",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (24x784 and 785x256)",
        "KeyError: 'connection'",
    ],
)
def test_what_a_rank_raises_by_itself(error: str) -> None:
    assert not is_consequence(error)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("raise SystemExit(3)", (3, "")),
        ("pass", (0, "")),
        ("import os; os.kill(os.getpid(), 9)", (None, "SIGKILL")),
        ("import os; os.abort()", (None, "SIGABRT")),
        ("import os; os.kill(os.getpid(), 40)", (None, "signal 40")),
    ],
)
def test_how_a_real_process_ended(code: str, expected: tuple[int | None, str]) -> None:
    assert describe_exit(subprocess.run([sys.executable, "-S", "-c", code], check=False).returncode) == expected


@pytest.mark.parametrize(
    "said", ["x" * 150_000, "é\x00" * 20_000, "no such file: /data/\udcff"], ids=["long", "long in JSON", "no text"]
)
def test_whatever_a_rank_raises_is_on_record(said: str) -> None:
    try:
        raise ValueError(said)
    except ValueError as error:
        sent = wire.encode(wire.Failed(0, 1, rank_error(error, traceback.format_exc())))
    found = msgspec.json.decode(sent, type=wire.Failed).error
    assert found is not None
    assert found.error.startswith(f"ValueError: {said[:10]}")
    # Where it was raised stands at the traceback's beginning, what was raised at its end.
    assert "in test_whatever_a_rank_raises_is_on_record" in found.traceback
    assert found.traceback.rstrip("\n").endswith(printable(said[-2:]))


def counter(path: Path, count: int, name: str = "oom_kill") -> None:
    path.write_text(f"oom 7\n{name} {count}\nother 1\n")


def test_the_killer_is_named_when_it_struck_lately(tmp_path: Path) -> None:
    path = tmp_path / "memory.events"
    counter(path, 4)
    watch = OomWatch(100.0, [path])
    assert watch.oom_killed() is False
    # Long ago is no news.
    counter(path, 5)
    for second in range(100, 100 + 4 * int(KEEP_S)):
        watch.poll(float(second))
    assert watch.oom_killed() is False
    counter(path, 6)
    watch.poll(100 + 5 * KEEP_S)
    assert watch.oom_killed() is True


@pytest.mark.parametrize("content", [None, "", "oom 1\n", "oom_kill x\n", "\xff"])
def test_a_kernel_that_tells_nothing(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "memory.events"
    if content is not None:
        path.write_text(content)
    assert OomWatch(0.0, [path]).oom_killed() is None
    assert OomWatch(0.0, []).oom_killed() is None
