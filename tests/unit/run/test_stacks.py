"""Stacks of real processes, on a signal that must do no harm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit.fake_ranks import Process
from tuiapp.trainers.contract.events import Stacks
from tuiapp.trainers.run import watchdog
from tuiapp.trainers.run.stacks import COLLECTIVES_FILE, FILE, Collectives, ask
from tuiapp.trainers.run.watchdog import MAX_BYTES, StackDump, suspect, suspect_collective

ANSWERS = """
import sys, time
from pathlib import Path
from tuiapp.trainers.run.stacks import answer_the_signal
answer_the_signal(Path(sys.argv[1]))
def waits_here():
    print("up", flush=True)
    time.sleep(600)
waits_here()
"""
BUSY = """
import sys, threading
from pathlib import Path
from tuiapp.trainers.run.stacks import answer_the_signal, tell
directory = Path(sys.argv[1])
answer_the_signal(directory)
sys.setrecursionlimit(100_000)
def deep(left):
    scope = {"deep": deep}
    exec("def once(left): return left and deep(left - 1)", scope)
    return scope["once"](left - 1) if left else 0
def work():
    while True:
        deep(150)
for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
print("up", flush=True)
for _ in sys.stdin:
    tell(directory)
    print("told", flush=True)
"""
DEAF = "import time; print('up', flush=True); time.sleep(600)"


DEADLINE_S = 60.0


@contextmanager
def process(code: str, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", code, str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        try:
            assert started.stdout.readline() == b"up\n"
            yield started
        finally:
            started.kill()


def collect(pid: int, directory: Path, last: str = "") -> list[Stacks]:
    """Ask a process for its stacks; it is not done before it has written what comes last."""
    dump = StackDump({0: Process(pid, directory)}, time.monotonic())
    deadline = time.monotonic() + DEADLINE_S
    while last and not any(last in stacks.text for stacks in dump.read()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    while not dump.is_complete(time.monotonic()):
        time.sleep(0.01)
    return dump.read()


def test_a_process_tells_where_it_stands_as_often_as_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A machine under load takes longer than a run would wait.
    monkeypatch.setattr(watchdog, "ANSWER_S", DEADLINE_S)
    with process(ANSWERS, tmp_path) as started:
        for _ in range(2):
            (stacks,) = collect(started.pid, tmp_path, last="in <module>")
            assert "in waits_here" in stacks.text
            assert stacks.text.count("waits_here") == 1
            assert stacks.pid == started.pid
        assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
        assert started.poll() is None


@pytest.mark.nightly
def test_asking_does_no_harm_to_threads_that_run_on(tmp_path: Path) -> None:
    with process(BUSY, tmp_path) as started:
        assert started.stdin is not None
        assert started.stdout is not None
        for _ in range(100):
            assert ask(started.pid)
            started.stdin.write(b"\n")
            started.stdin.flush()
            assert started.stdout.readline() == b"told\n"
        text = (tmp_path / FILE).read_text()
        assert text.count("in work") >= 100


def test_one_that_does_not_answer_over_its_pipe_gets_the_signal(tmp_path: Path) -> None:
    with process(ANSWERS, tmp_path) as started:
        dump = StackDump({0: Process(started.pid, tmp_path, hears=False)}, 0.0)
        assert not dump.is_complete(1.0)
        assert dump.read() == []
        deadline = time.monotonic() + DEADLINE_S
        assert not dump.is_complete(2.0)
        while not any("in <module>" in stacks.text for stacks in dump.read()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert started.poll() is None


@pytest.mark.parametrize("code", [ANSWERS, DEAF])
def test_a_stopped_one_is_not_asked_and_goes_on_unharmed(tmp_path: Path, code: str) -> None:
    with process(code, tmp_path) as started:
        started.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + DEADLINE_S
        while b"T" not in Path(f"/proc/{started.pid}/stat").read_bytes().split(b") ")[-1][:1]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert collect(started.pid, tmp_path) == []
        started.send_signal(signal.SIGCONT)
        with pytest.raises(subprocess.TimeoutExpired):
            started.wait(0.3)


def test_what_is_read_back_is_bounded_and_free_of_control_characters(tmp_path: Path) -> None:
    path = tmp_path / FILE
    dump = StackDump({0: Process(os.getpid(), tmp_path)}, 0.0)
    path.write_bytes(b"\x1b[31m\x9b\x00evil\r\n" + b"\xff" + b"x" * (2 * MAX_BYTES))
    (stacks,) = dump.read()
    assert len(stacks.text) <= MAX_BYTES
    assert stacks.text.isprintable() or set(stacks.text) - {"\n"} <= {c for c in stacks.text if c.isprintable()}
    path.unlink()
    path.symlink_to("/etc/passwd")
    assert dump.read() == []


def stacks_at(rank: int, *frames: str) -> Stacks:
    lines = [f'  File "/x/{frame.split(":")[0]}", line 7 in {frame.split(":")[1]}' for frame in frames]
    text = "\n".join(
        ['Thread 0x01 (most recent call first):\n  File "/x/reporter.py", line 1 in _send\n', "Thread 0x02:", *lines]
    )
    return Stacks(rank=rank, pid=1, text=text)


WAITS = ("distributed_c10d.py:wait", "torch_ddp.py:train")
ON_GPU = ("streams.py:synchronize", "loop.py:wait")
WORKS = ("model.py:load", "torch_ddp.py:train")


@pytest.mark.parametrize(
    ("places", "ranks"),
    [
        ([WAITS, WORKS], [1]),
        ([WORKS, WAITS, WAITS, WAITS], [0]),
        ([ON_GPU, WORKS], [1]),
        ([WORKS, WAITS, WORKS, WAITS], [0, 2]),
        ([WAITS, WAITS, WAITS], None),
        ([WORKS, WORKS], None),
        ([WORKS, WORKS, ("other.py:f",)], [2]),
        ([WORKS, ("other.py:f",)], None),
        ([WORKS, ("a.py:f",), ("b.py:f",)], None),
        ([WORKS], None),
        ([], None),
    ],
)
def test_who_keeps_the_others_waiting(places: list[tuple[str, ...]], ranks: list[int] | None) -> None:
    found = suspect([stacks_at(rank, *frames) for rank, frames in enumerate(places)])
    assert (found.ranks if found else None) == ranks
    if found and found.ranks == [1]:
        assert found.text == "rank 1 is not where the others wait in a collective: model.py, line 7, in load"


def test_collectives_that_a_rank_has_told_come_with_its_stacks(tmp_path: Path) -> None:
    Collectives(9, 9, "").tell(tmp_path)
    dump = StackDump({0: Process(os.getpid(), tmp_path)}, 0.0)
    (tmp_path / FILE).write_text("Thread 0x02:\n")
    assert [stacks.text for stacks in dump.read()] == ["Thread 0x02:"]
    Collectives(12, 10, "all_reduce of Float [3]").tell(tmp_path)
    told = "Collectives: 12 begun, 10 done; waits for all_reduce of Float [3]"
    assert [stacks.text for stacks in dump.read()] == [f"{told}\n\nThread 0x02:"]
    assert (tmp_path / COLLECTIVES_FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("told", "ranks", "words"),
    [
        # On the CPU a rank waits in each; on a GPU several steps' are begun ahead.
        ([(7, 6), (6, 6)], [1], "rank 1 has not begun collective 7, broadcast, in which others wait"),
        ([(30, 6), (6, 6), (28, 6)], [1], "rank 1 has not begun collective 7, broadcast, in which others wait"),
        (
            [(7, 6), (3, 3), (5, 5)],
            [1, 2],
            "ranks 1 and 2 have not begun collective 7, broadcast, in which others wait",
        ),
        ([(30, 6), (28, 6)], [], "all have begun collective 7, broadcast, and none has done it"),
        # Of the others nobody knows.
        ([(7, 6), None, (7, 6)], None, ""),
        ([(7, 6)], None, ""),
        ([(6, 6), (6, 6)], None, ""),
        ([None, None], None, ""),
    ],
)
def test_who_has_not_begun_what_the_others_wait_in(
    told: list[tuple[int, int] | None], ranks: list[int] | None, words: str
) -> None:
    stacks = [
        Stacks(
            rank=rank,
            pid=1,
            text="Thread 0x02:"
            if one is None
            else f"Collectives: {one[0]} begun, {one[1]} done"
            + ("; waits for broadcast" if one[0] > one[1] else "")
            + "\n\nThread 0x02:",
        )
        for rank, one in enumerate(told)
    ]
    found = suspect_collective(stacks)
    assert (found.ranks if found else None) == ranks
    assert (found.text if found else "") == words
