"""What a headless run says of checkpoints, stops and further attempts."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import msgspec
import pytest

from tests.kit import histories as h
from tests.kit import interrupted
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
