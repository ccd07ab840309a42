"""What a headless run says, and how its lines are drawn anew in place."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import msgspec
import pyte
import pytest
from rich.text import Text

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.harness import START_S, Gate, watching
from tests.kit.terminal import Terminal
from tests.processes.conftest import FAULTS
from tuiapp.library.find import find_run
from tuiapp.terminal.live_lines import LiveLines
from tuiapp.trainers.contract.events import AnyEvent, CheckpointRequested
from tuiapp.trainers.contract.metrics import EXAMPLES
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState
from tuiapp.verbs.narration import LiveNarrator, PlainNarrator, QuietNarrator, live_view, progress_words

RUN = RunDir(Path("/home/ada/runs") / h.RUN_ID)


def told(events: Sequence[AnyEvent], *, bar: bool = False) -> list[str]:
    """The lines, without the time in front, from the checkpoints on or about a further attempt."""
    stream, state = StringIO(), RunState()
    narrator = LiveNarrator(stream, RUN) if bar else PlainNarrator(stream, RUN)
    for event in events:
        apply(state, event)
        narrator.event(event, state)
    lines = [line.split("  ", 1)[-1] for line in stream.getvalue().splitlines()]
    return [line for line in lines if "checkpoint" in line or "attempt" in line]


def test_one_line_for_each_checkpoint_and_the_stop() -> None:
    assert told(interrupted.stopped()) == [
        "checkpoint step-00000029 · 2.70 MiB · 31.0 ms · best so far",
        "checkpoint step-00000058 · 2.70 MiB · 31.0 ms · best so far",
        "stop requested · command · saving a checkpoint, then stopping (Ctrl-C again: at once, without it)",
        "checkpoint step-00000072 · 2.70 MiB · 31.0 ms",
    ]


def test_one_line_for_each_epoch_that_all_ranks_have_ended() -> None:
    stream, state = StringIO(), RunState()
    narrator = PlainNarrator(stream, RUN)

    def lines(events: Sequence[AnyEvent]) -> list[str]:
        stream.seek(0)
        stream.truncate()
        for event in events:
            apply(state, event)
            narrator.event(event, state)
        return [line for line in stream.getvalue().splitlines() if "s/epoch" in line]

    assert not lines([h.started(), h.steps(0, 1, 40, 3.0), h.steps(1, 1, 28, 3.0)])
    (line,) = lines([h.steps(1, 29, 40, 3.1)])
    assert "epoch 1/10 · loss 1.8" in line
    assert line.endswith("· 1.45 s/epoch · 960 examples/s")
    both = [h.steps(rank, 41, 87, 6.0) for rank in (0, 1)]
    assert ["epoch 2/10" in line for line in lines(both)] == [True, False]
    # The next attempt makes the third again.
    assert not lines([h.started(attempt=2, resumed_from=58, seconds=9)])
    (line,) = lines([h.steps(rank, 59, 87, 11.0) for rank in (0, 1)])
    assert "epoch 3/10" in line


def test_replicas_that_part_are_told_and_equal_ones_are_not() -> None:
    stream, state = StringIO(), RunState()
    narrator = QuietNarrator(stream, RUN)
    for event in interrupted.parted():
        apply(state, event)
        narrator.event(event, state)
    (line,) = stream.getvalue().splitlines()
    assert "the weights of rank 1 differ from those of most ranks after step 116" in line


def test_quiet_has_what_goes_wrong_and_the_end() -> None:
    stream, state = StringIO(), RunState()
    narrator = QuietNarrator(stream, RUN)
    for event in interrupted.failed():
        apply(state, event)
        narrator.event(event, state)
        narrator.tick(state)
    narrator.end(state)
    first, *traceback, last = stream.getvalue().splitlines()
    assert "failed at step 72" in first
    assert not [line for line in traceback if "epoch" in line or "checkpoint" in line]
    assert last.startswith("FAILED: ")


def test_above_a_bar_only_those_that_were_asked_for() -> None:
    assert told(interrupted.stopped(), bar=True) == told(interrupted.stopped())[2:]
    asked: list[AnyEvent] = [CheckpointRequested(by="SIGUSR1"), h.checkpoint(30, 5), h.checkpoint(58, 6)]
    assert told([*h.running(), *asked], bar=True) == [
        "checkpoint requested · SIGUSR1",
        "checkpoint step-00000030 · 2.70 MiB · 31.0 ms",
    ]


@pytest.mark.parametrize("bar", [False, True])
def test_a_journal_that_stands_still_is_told_once_and_shown_as_long(bar: bool) -> None:
    stream, state = StringIO(), RunState()
    for event in h.running():
        apply(state, event)
    narrator = LiveNarrator(stream, RUN) if bar else PlainNarrator(stream, RUN)
    for seconds in (1, 2):
        state.note_trouble(f"the journal has not been writable for {seconds} s: No space left on device")
        narrator.tick(state)
    lines = [line for line in stream.getvalue().splitlines() if line[2:3] == ":"]
    assert [line.split("  ", 1)[1] for line in lines] == [
        "the journal has not been writable for 1 s: No space left on device"
    ]
    assert state.trouble in progress_words(state)
    assert any(state.trouble in line for line in live_view(state, 0.0, 120))
    state.note_trouble("")
    narrator.tick(state)
    state.note_trouble("the journal has not been writable for 1 s: Disk quota exceeded")
    narrator.tick(state)
    assert "Disk quota exceeded" in stream.getvalue()


def test_the_loss_is_that_of_all_examples() -> None:
    state = RunState()
    for event in h.running(2):
        apply(state, event)
    last = max(rank.step for rank in state.ranks.values())
    for rank, loss, examples in ((0, 1.0, 36), (1, 2.0, 12)):
        event = h.steps(rank, last + 1, last + 1, 60.0, losses=[loss])
        apply(state, msgspec.structs.replace(event, values={**event.values, EXAMPLES: [examples]}))
    assert "loss 1.250 " in progress_words(state)


class Screen:
    """A terminal that can be resized, behind a stream."""

    def __init__(self, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("COLUMNS", "LINES"):
            monkeypatch.delenv(name, raising=False)
        self.screen = pyte.Screen(columns, 10)
        self.stream = StringIO()
        self._feed = pyte.Stream(self.screen)
        self.live = LiveLines(self.stream)
        monkeypatch.setattr(os, "get_terminal_size", self._size)

    def _size(self, *_: int) -> os.terminal_size:
        return os.terminal_size((self.screen.columns, self.screen.lines))

    def draw(self, *lines: str) -> None:
        self.live.draw([Text(line) for line in lines])

    @property
    def lines(self) -> list[str]:
        """What stands on it."""
        self._feed.feed(self.stream.getvalue().replace("\n", "\r\n"))
        self.stream.seek(0)
        self.stream.truncate()
        return [line.rstrip() for line in self.screen.display if line.strip()]


def state_of(events: list[AnyEvent]) -> RunState:
    state = RunState()
    for event in events:
        apply(state, event)
    return state


def test_lines_are_drawn_anew_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Screen(40, monkeypatch)
    terminal.draw("one", "two")
    terminal.draw("three")
    assert terminal.lines == ["three"]
    terminal.live.print_above("said")
    assert terminal.lines == ["said", "three"]
    terminal.draw("界" * 30, "b" * 80)
    shown = terminal.lines
    assert [line[-1] for line in shown] == ["d", "…", "…"]
    terminal.live.print_above("[b]no markup[/b] :smile: " + "c" * 40)
    shown = terminal.lines
    assert [line[-1] for line in shown] == ["d", "c", "c", "…", "…"]
    assert shown[1].startswith("[b]no markup[/b] :smile: ")
    terminal.live.close()
    assert terminal.lines == shown


@pytest.mark.parametrize("cells", [40, 80, 120, 200])
def test_the_lines_fit_and_tell_the_facts(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    state = state_of(list(h.running()))
    terminal = Screen(cells, monkeypatch)
    terminal.draw(*live_view(state, h.START + 60, cells))
    text = "\n".join(terminal.lines)
    assert len(terminal.lines) == 2 + (cells >= 100)
    assert re.search(r"\d %", text)
    if cells >= 80:
        for word in ("epoch", "step", "loss", "accuracy", "examples/s", "elapsed"):
            assert word in text, text
    assert ("rank 0" in text and "rank 1" in text) == (cells >= 100)


@contextmanager
def headless_run(directory: Path, fault: str) -> Iterator[Terminal]:
    """A run in a real terminal, with a fault in its rank."""
    settings = ("platform=cpu", "devices=1", "epochs=2")
    command = [sys.executable, "-P", "-m", "tuiapp", "run", "mlp", *(word for s in settings for word in ("--set", s))]
    home = {"HOME": str(directory), "XDG_CONFIG_HOME": str(directory), "TUIAPP_RUNS_DIR": str(directory / "runs")}
    faults = {"TUIAPP_TEST_BACKEND": "fake", "TUIAPP_TEST_FAULT": fault, "TUIAPP_TEST_GATE": str(directory / "gate")}
    path = os.pathsep.join(filter(None, [str(FAULTS), os.environ.get("PYTHONPATH")]))
    environment = {**home, **faults, "PYTHONPATH": path}
    with Terminal(command, columns=100, lines=24, environment=environment) as terminal:
        terminal.wait(r"training +[━╸─]+ +\d+ %", START_S)
        yield terminal


@pytest.mark.nightly
def test_in_a_real_terminal(tmp_path: Path) -> None:
    # In the midst of its first epoch it waits until the bar was seen.
    with headless_run(tmp_path, "gate:0:15") as terminal, watching(find_run("latest", tmp_path / "runs")):
        terminal.resize(60, 24)
        Gate(tmp_path / "gate").open()
        terminal.wait(r"COMPLETED", START_S)
        assert terminal.wait_exit() == 0
        # The last words stay: the view as it was last, once, and the line that says what came of it.
        text = terminal.text
        assert len(re.findall(r"\d+ % +epoch", text)) == 1, text
        assert "100 %" in text
        assert b"\x07" in terminal.raw
        assert b"\x1b]9;tuiapp: mlp on digits completed" in terminal.raw


@pytest.mark.nightly
def test_what_is_said_at_ctrl_c_stays_above_the_view(tmp_path: Path) -> None:
    with headless_run(tmp_path, "gate:0:15") as terminal:
        run = find_run("latest", tmp_path / "runs")
        with watching(run):
            run.commands.rmdir()
            terminal.press("ctrl+c")
            terminal.wait(r"sent SIGTERM to its[\s\S]+ % +epoch", START_S)
            Gate(tmp_path / "gate").open()
            terminal.wait(r"STOPPED", START_S)
            assert terminal.wait_exit() == 130
            text = terminal.text
            assert len(re.findall(r"\d+ % +epoch", text)) == 1, text
            assert "sent SIGTERM to its" in text
