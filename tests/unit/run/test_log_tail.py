"""Following a rank's log while it is written."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from tuiapp.trainers.run.log_tail import LINES_PER_POLL, MAX_LINE_BYTES, READ_BYTES, LogTail


class Log:
    """A log file and its tail."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tail = LogTail(path, 3, "stderr")

    def write(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)

    def poll(self, *, final: bool = False) -> list[str]:
        lines = self.tail.poll(final=final)
        assert all((line.rank, line.stream) == (3, "stderr") for line in lines)
        return [line.text for line in lines]

    def poll_all(self) -> list[str]:
        texts: list[str] = []
        while more := self.poll():
            texts += more
        return texts


@pytest.fixture
def log(tmp_path: Path) -> Log:
    (tmp_path / "3").mkdir()
    return Log(tmp_path / "3" / "stderr.log")


def test_lines_as_they_come(log: Log) -> None:
    assert log.poll() == []
    log.write(b"one\ntwo\nthr")
    assert log.poll() == ["one", "two"]
    assert log.poll() == []
    log.write(b"ee\n\n  \nfour  \n")
    assert log.poll() == ["three", "four"]
    assert list(log.tail.last_lines) == ["one", "two", "three", "four"]


def test_a_torn_last_line_is_taken_at_the_end(log: Log) -> None:
    log.write(b"one\nlast words")
    assert log.poll() == ["one"]
    assert log.poll(final=True) == ["last words"]
    assert log.poll(final=True) == []


def test_bytes_that_are_no_text(log: Log) -> None:
    log.write(b"caf\xc3\xa9 \xff\xfe\x00 \xe2\x82\nnext\n")
    assert log.poll() == ["café ��\x00 �", "next"]


def test_of_a_progress_bar_the_last_state(log: Log) -> None:
    log.write(b"10%\r20%\r30%\r\nA\r\n\r\r\n")
    assert log.poll() == ["30%", "A"]
    log.write(b" 1/2\r 2/2\r")
    assert log.poll() == []
    assert log.poll(final=True) == [" 2/2"]


def test_bars_beneath_each_other_leave_no_blank_lines(log: Log) -> None:
    """As tqdm writes them with `position`, or within another's loop."""
    log.write(b"\router:   0%\n\rinner:  50%\x1b[A\n\rinner: 100%\x1b[A\n")
    log.write(b"\r            \x1b[Aepoch 0\n\n\n\x1b[A\x1b[2A\n")
    assert log.poll_all() == ["outer:   0%", "inner:  50%", "inner: 100%", "epoch 0"]


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_a_listener_hears_each_state_of_a_progress_bar_while_it_is_drawn(log: Log, chunk: int) -> None:
    heard: list[str] = []
    log.tail.on_texts = heard.extend
    data = b"start\n" + b"".join(b"\r%d/30 loss=%d" % (number, number) for number in range(1, 31))
    for begin in range(0, len(data), chunk):
        log.write(data[begin : begin + chunk])
        log.poll()
    states = [f"{number}/30 loss={number}" for number in range(1, 31)]
    assert heard == ["start", *states[:-1]]
    log.write(b"\nend")
    assert log.poll() == states[-1:]
    assert log.poll(final=True) == ["end"]
    assert heard == ["start", *states, "end"]


@pytest.mark.parametrize("chunk", [100, 5000, 1_000_000])
def test_of_a_long_progress_bar_the_last_state(log: Log, chunk: int) -> None:
    data = b"".join(b"\r%5d/5000 " % number + b"#" * 70 for number in range(1, 5001)) + b"\nnext\n"
    texts = []
    for start in range(0, len(data), chunk):
        log.write(data[start : start + chunk])
        if chunk > 100 or start % 1700 == 0:
            texts += log.poll()
    texts += log.poll_all()
    assert texts == [" 5000/5000 " + "#" * 70, "next"]


@pytest.mark.parametrize("ended", [True, False])
def test_a_line_of_10_mb_is_cut(log: Log, ended: bool) -> None:
    log.write(b"start " + b"x" * 10_000_000 + (b" end\nnext\n" if ended else b" end"))
    tracemalloc.start()
    texts = log.poll_all() + log.poll(final=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert texts == ["start " + "x" * (MAX_LINE_BYTES - 6), *(["next"] if ended else [])]
    assert peak < 4 * READ_BYTES


def test_the_end_of_a_line_that_was_cut_is_no_line(log: Log) -> None:
    log.write(b"x" * (MAX_LINE_BYTES + 1))
    assert [len(text) for text in log.poll()] == [MAX_LINE_BYTES]
    log.write(b" end")
    assert log.poll(final=True) == []


def test_a_long_line_that_comes_in_pieces_is_cut_once(log: Log) -> None:
    texts = []
    for _ in range(100):
        log.write(b"y" * 1000)
        texts += log.poll()
    log.write(b"end\nnext\n")
    texts += log.poll()
    assert [len(text) for text in texts] == [MAX_LINE_BYTES, 4]


def test_of_a_flood_some_lines_are_kept_and_the_rest_counted(log: Log) -> None:
    log.write(b"".join(b"line %d\n" % number for number in range(10_000)))
    texts = log.poll()
    assert texts[:LINES_PER_POLL] == [f"line {number}" for number in range(LINES_PER_POLL)]
    assert texts[LINES_PER_POLL:] == [f"… {10_000 - LINES_PER_POLL:,} more lines in 3/stderr.log"]
    assert log.tail.last_lines[-1] == "line 9999"
    assert len(log.tail.last_lines) == 20


def test_a_flood_does_not_hold_up_a_poll(log: Log) -> None:
    log.write(b"a line of a flood\n" * 500_000)
    assert len(log.poll()) == LINES_PER_POLL + 1
    assert len(log.poll()) == LINES_PER_POLL + 1


def test_after_a_flood_the_last_lines_are_found_without_reading_all(log: Log) -> None:
    log.write(b"first\n" + b"a line of a flood\n" * 2_000_000 + b"last words\n")
    tracemalloc.start()
    texts = log.poll(final=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert texts[0] == "first"
    assert len(texts) == LINES_PER_POLL + 1
    assert texts[-1] == "… 33 MiB more in 3/stderr.log"
    assert log.tail.last_lines[-1] == "last words"
    assert set(list(log.tail.last_lines)[:-1]) == {"a line of a flood"}
    assert peak < 20 * READ_BYTES
    assert log.poll(final=True) == []


def test_a_file_that_is_gone(log: Log) -> None:
    log.write(b"one\n")
    assert log.poll() == ["one"]
    log.path.unlink()
    assert log.poll(final=True) == []
