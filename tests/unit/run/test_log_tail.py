"""Following a rank's log while it is written."""

from __future__ import annotations

import io
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest
from rich.console import Console
from rich.progress import Progress
from tqdm import tqdm, trange

from tuiapp.trainers.run import log_tail
from tuiapp.trainers.run.log_tail import HELD_POLLS, LINES_PER_POLL, MAX_LINE_BYTES, READ_BYTES, LogTail
from tuiapp.trainers.state.text import sanitize


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
        calls = 0
        # What may be written over comes some calls later.
        while calls <= HELD_POLLS:
            more = self.poll()
            texts += more
            calls = 0 if more else calls + 1
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


def nested(file: IO[str]) -> None:
    for _ in trange(3, desc="epochs", file=file, mininterval=0):
        for _ in trange(20, desc="steps", leave=False, file=file, mininterval=0):
            pass


def nested_and_left(file: IO[str]) -> None:
    for _ in trange(3, desc="epochs", file=file, mininterval=0):
        for _ in trange(20, desc="steps", file=file, mininterval=0):
            pass


def nested_with_words(file: IO[str]) -> None:
    for epoch in trange(3, desc="epochs", file=file, mininterval=0):
        for step in trange(20, desc="steps", leave=False, file=file, mininterval=0):
            if step % 10 == 0:
                tqdm.write(f"epoch {epoch} step {step}", file=file)
    print("done", file=file)


def three_deep(file: IO[str]) -> None:
    for _ in trange(2, desc="folds", file=file, mininterval=0):
        for _ in trange(2, desc="epochs", leave=False, file=file, mininterval=0):
            for _ in trange(20, desc="steps", leave=False, file=file, mininterval=0):
                pass


def side_by_side(file: IO[str]) -> None:
    bars = [tqdm(total=20, desc=f"worker {number}", position=number, file=file, mininterval=0) for number in range(3)]
    for _ in range(20):
        for bar in bars:
            bar.update()
    for bar in bars:
        bar.close()
    print("done", file=file)


def of_rich(file: IO[str]) -> None:
    console = Console(file=file, force_terminal=True, width=80)
    with Progress(console=console, auto_refresh=False) as progress:
        epochs, steps = progress.add_task("epochs", total=3), progress.add_task("steps", total=20)
        for epoch in range(3):
            progress.reset(steps)
            for _ in range(20):
                progress.advance(steps)
                progress.refresh()
            progress.advance(epochs)
            console.print("epoch", epoch)


BARS: list[tuple[Callable[[IO[str]], None], list[str]]] = [
    (nested, ["epochs: 100%"]),
    (nested_and_left, ["steps: 100%"] * 3 + ["epochs: 100%"]),
    (
        nested_with_words,
        [*(f"epoch {epoch} step {step}" for epoch in range(3) for step in (0, 10)), "epochs: 100%", "done"],
    ),
    (three_deep, ["folds: 100%"]),
    (side_by_side, ["worker 0: 100%", "worker 1: 100%", "worker 2: 100%", "done"]),
    (of_rich, ["epoch 0", "epoch 1", "epoch 2", "epochs", "steps"]),
]


@pytest.mark.parametrize("chunk", [1, 7, READ_BYTES])
@pytest.mark.parametrize(("draw", "kept"), BARS, ids=[draw.__name__ for draw, _ in BARS])
def test_bars_beneath_each_other_are_folded(
    log: Log, draw: Callable[[IO[str]], None], kept: list[str], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_tail, "READ_BYTES", chunk)
    file = io.StringIO()
    draw(file)
    texts: list[str] = []
    heard: list[str] = []
    log.tail.on_texts = heard.extend
    for data in re.findall(rb"(?s).+?(?:\x1b\[A|\n)+|.+", file.getvalue().encode()):
        log.write(data)
        texts += log.poll()
    texts += log.poll(final=True)
    assert [re.split(r"\||━", sanitize(text))[0].strip() for text in texts] == kept
    if draw is nested:
        states = [text for text in heard if "/20" in text]
        assert [re.findall(r"\d+/20", text)[0] for text in states] == [f"{step}/20" for step in range(21)] * 3


def test_a_line_between_bars_comes_once_they_are_below_it(log: Log) -> None:
    log.write(b"\repochs 0%\n\rsteps 0%\x1b[A\r         \repoch 0\n")
    texts = []
    for _ in range(HELD_POLLS + 1):
        texts += log.poll()
        log.write(b"\repochs 1%\n\rsteps 1%\x1b[A")
    assert texts == ["epoch 0"]
    log.write(b"\x1b[900A\rup\x1b[1")
    log.poll()
    log.write(b"A\r\n\n")
    assert log.poll(final=True) == ["up", "epochs 1%", "steps 1%"]


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
    assert log.poll_all()[-1:] == states[-1:]
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


def test_of_a_flood_some_lines_are_kept_and_the_rest_counted(log: Log) -> None:
    log.write(b"".join(b"line %d\n" % number for number in range(10_000)))
    texts = log.poll()
    assert texts[:LINES_PER_POLL] == [f"line {number}" for number in range(LINES_PER_POLL)]
    assert texts[LINES_PER_POLL:] == [f"… {10_000 - LINES_PER_POLL:,} more lines in 3/stderr.log"]
    assert log.tail.last_lines[-1] == "line 9999"
    assert len(log.tail.last_lines) == 20


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
