"""A terminal that nobody reads, as behind a connection that hangs: training does not notice.

A dashboard's terminal is read and left unread in turns, then left unread for a minute in one piece. Time is taken by
the ranks' own clock. Where steps are paced, as by GPUs, what a view costs shows as lateness, and as a lower rate once a
step is later than the device can bear. Where they are not, the rate says as well what processor time is left.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pytest

from tests.kit.harness import MLP, Watched, launched
from tests.kit.reported import values
from tests.kit.terminal import Terminal
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.metrics import LOSS, STEP_TIME

pytestmark = pytest.mark.by_hand

TUIAPP = [sys.executable, "-P", "-m", "tuiapp"]
PAIRS, WINDOW_S, UNREAD_S = 8, 10.0, 60.0
PACE_S = 0.01
ENDLESS = msgspec.structs.replace(MLP, checkpoint_every=0, eval_every=0, epochs=100_000)


class Window(NamedTuple):
    """What the ranks did between two moments."""

    rate: float
    """Steps per second of a rank."""
    late_ms: float
    """By how much a paced step was late, on average."""
    latest_ms: float
    """By how much the latest was."""
    cost: float
    """Seconds of processor time per step: of training and its supervisor, not of the dashboard."""


def watch(run: Watched, terminal: Terminal, seconds: float, *, reading: bool) -> Window:
    """Let time pass, with the terminal's output taken or left."""
    spent, began = processor_s(run), time.monotonic()
    while (left := began + seconds - time.monotonic()) > 0:
        if reading:
            terminal._pump(min(0.05, left))
        else:
            time.sleep(min(0.05, left))
    ended, spent = time.monotonic(), processor_s(run) - spent
    inside = [event for event in run.reports() if began <= event.mono <= ended]
    counts = np.concatenate([event.counts or [1] * len(event.values[LOSS]) for event in inside])
    took = np.array(values(inside, STEP_TIME), float)
    late = np.array(values(inside, LOSS), float)
    latest = max(loss for event in inside for loss in (event.highs or event.values).get(LOSS, ()) if loss is not None)
    rate = counts.sum() / (counts @ took)
    return Window(rate, counts @ late / counts.sum(), latest, spent / (rate * (ended - began)))


def processor_s(run: Watched) -> float:
    """Processor time that the run's processes have had so far."""
    return sum(sum(process.cpu_times()[:2]) for process in run.processes())


def tell(name: str, values: list[float], unit: str = "%") -> None:
    """Print the median, with the interval that holds it in 95 of 100 cases (bootstrap), and the range."""
    scale = 100 if unit == "%" else 1
    drawn = np.random.default_rng(0).choice(values, (10_000, len(values)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    figures = [scale * value for value in (statistics.median(values), low, high, min(values), max(values))]
    print("  {}: median {:+.2f} {unit} [{:+.2f}, {:+.2f}], {:+.2f} … {:+.2f}".format(name, *figures, unit=unit))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("paced", [True, False])
def test_an_unread_terminal(runs_dir: Path, fake: Callable[..., None], paced: bool) -> None:
    if paced:
        fake(pace=PACE_S)
    environment = {"TUIAPP_RUNS_DIR": str(runs_dir), "LANG": "C.UTF-8"}
    with launched(ENDLESS, runs_dir) as run:
        run.at_step(50)
        with Terminal([*TUIAPP, "attach", run.run.run_id], environment=environment) as terminal:
            terminal.wait("RUNNING", 60)
            terminal.press("5")
            terminal.wait_for_silence()
            pairs = []
            for pair in range(PAIRS):
                order = (True, False) if pair % 2 else (False, True)
                seen = {reading: watch(run, terminal, WINDOW_S, reading=reading) for reading in order}
                pairs.append((seen[True], seen[False]))
            before = watch(run, terminal, UNREAD_S / 2, reading=True)
            unread = watch(run, terminal, UNREAD_S, reading=False)
            after = watch(run, terminal, UNREAD_S / 2, reading=True)
            terminal.wait("RUNNING", 60)
            terminal.process.kill(15)
            terminal.wait_exit()
        sidecars.send_command(run.run.commands, "stop-now")
        run.end()
        run.wait_gone()
    read_rate = statistics.median(read.rate for read, _ in pairs)
    print(f"\n{'paced' if paced else 'unpaced'}, {read_rate:.2f} steps/s with the terminal read; unread instead:")
    print(f"{PAIRS} pairs of {WINDOW_S:.0f} s in turns, load {os.getloadavg()[0]:.1f}")
    tell("steps per second", [left.rate / read.rate - 1 for read, left in pairs])
    # A step's cost says whether training has more to do; its rate also rises with what the dashboard leaves it.
    tell("processor time of training per step", [left.cost / read.cost - 1 for read, left in pairs])
    if paced:
        tell("a step's mean lateness, read", [read.late_ms for read, _ in pairs], "ms")
        tell("a step's mean lateness, unread", [left.late_ms for _, left in pairs], "ms")
        tell("the latest step, read", [read.latest_ms for read, _ in pairs], "ms")
        tell("the latest step, unread", [left.latest_ms for _, left in pairs], "ms")
    around = (before.rate + after.rate) / 2
    print(
        f"  unread for {UNREAD_S:.0f} s in one piece beside as long before and after: {unread.rate / around - 1:+.2%}"
    )
    # What waits for the terminal would stand still for a minute; smaller changes are for the reader of the figures.
    assert unread.rate > around / 2
    assert unread.late_ms < 1e3 * UNREAD_S / 4 or not paced
