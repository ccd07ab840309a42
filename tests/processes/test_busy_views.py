"""Views that are slow or flooded: training does not notice, the keyboard is served, the journal is complete."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.processes.harness import MLP, Watched, launched
from tests.pty.terminal import Terminal
from trainers.contract import mailbox
from trainers.contract.config import RunConfig, to_toml
from trainers.contract.events import Steps
from trainers.contract.journal import JournalReader
from trainers.contract.rundir import RunDir

TUIAPP = [sys.executable, "-P", "-m", "tuiapp"]
PAIRS, PERIOD_S, UNREAD_S = 12, 5.0, 60.0


def rate(run: Watched, began: float, ended: float) -> float:
    """Steps per second of rank 0 between two moments of the monotonic clock."""
    reports = [(event.mono, event.last_step) for event in run.of(Steps) if event.rank == 0]
    inside = [report for report in reports if began <= report[0] <= ended]
    (first, low), (last, high) = inside[0], inside[-1]
    return (high - low) / (last - first)


def processor_s(run: Watched) -> float:
    """Processor time that the run's processes have had so far: training's and the supervisor's, not the dashboard's."""
    return sum(sum(process.cpu_times()[:2]) for process in run.processes())


def spend(terminal: Terminal, seconds: float, *, reading: bool) -> tuple[float, float]:
    """Let time pass, with the terminal's output taken or left."""
    began = time.monotonic()
    while (left := began + seconds - time.monotonic()) > 0:
        if reading:
            terminal._pump(min(0.05, left))
        else:
            time.sleep(min(0.05, left))
    return began, time.monotonic()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_an_unread_terminal(runs_dir: Path) -> None:
    config = msgspec.structs.replace(MLP, checkpoint_every=0, eval_every=0, epochs=100_000)
    environment = {"TUIAPP_RUNS_DIR": str(runs_dir), "LANG": "C.UTF-8"}
    with launched(config, runs_dir) as run:
        run.at_step(50)
        with Terminal([*TUIAPP, "attach", run.run.run_id], environment=environment) as terminal:
            terminal.wait("RUNNING", 60)
            terminal.press("5")
            terminal.wait_for_silence()
            changes, costs = [], []
            for pair in range(PAIRS):
                rates, cost = {}, {}
                for reading in (pair % 2 == 0, pair % 2 == 1):
                    spent = processor_s(run)
                    began, ended = spend(terminal, PERIOD_S, reading=reading)
                    spent = processor_s(run) - spent
                    rates[reading] = rate(run, began, ended)
                    cost[reading] = spent / (rates[reading] * (ended - began))
                changes.append(rates[False] / rates[True] - 1)
                costs.append(cost[False] / cost[True] - 1)
            before = rate(run, *spend(terminal, 15, reading=True))
            unread = rate(run, *spend(terminal, UNREAD_S, reading=False))
            after = rate(run, *spend(terminal, 15, reading=True))
            terminal.wait("RUNNING", 60)
            terminal.process.kill(15)
            terminal.wait_exit()
        mailbox.send(run.run.commands, "stop-now")
        run.end()
        run.wait_gone(10)
    whole = unread / ((before + after) / 2) - 1
    print(f"\nunread for {PERIOD_S:.0f} s, {PAIRS} pairs in turns, load {os.getloadavg()[0]:.1f}:")
    median, error = _figures("steps per second", changes)
    # A step's cost says whether training has more to do; its rate also rises with what the dashboard leaves it.
    _figures("processor time of training per step", costs)
    print(f"unread for {UNREAD_S:.0f} s beside 15 s before and after: {whole:+.1%}")
    # The 2 %, as far as the machine's other work lets it be seen.
    assert median > -0.02 - 2 * error


def _figures(name: str, changes: list[float]) -> tuple[float, float]:
    """Print changes of a figure; their median and the standard error of their mean."""
    median, mean = statistics.median(changes), statistics.mean(changes)
    error = statistics.stdev(changes) / len(changes) ** 0.5
    print(f"  {name}: median {median:+.1%}, mean {mean:+.1%} ± {error:.1%}")
    return median, error


WRITER = textwrap.dedent(
    """
    import sys, time
    from pathlib import Path
    from trainers.contract.events import LogLine, RunStarted
    from trainers.contract.journal import JournalWriter
    from trainers.contract.rundir import RunDir

    run, per_second, seconds = RunDir(Path(sys.argv[1])), 50_000, float(sys.argv[2])
    lock = run.take_lock()
    writer = JournalWriter(run.journal)
    writer.append([RunStarted(run_id=run.run_id, host="h", pid=1, config={}, world_size=2, steps_per_epoch=29,
                              total_steps=290)])
    sys.stdin.readline()
    began, number = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        due = int((time.monotonic() - began) * per_second)
        more = range(number, min(due, number + 5000))
        batch = [LogLine(rank=i % 2, stream="stdout", text=f"record {i}") for i in more]
        number += len(batch)
        writer.append(batch)
        writer.sync_due()
        time.sleep(0.01)
    took = time.monotonic() - began
    writer.append([LogLine(rank=0, stream="stdout", text="that was all")])
    print(number, number / took, flush=True)
    sys.stdin.readline()
    """
)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_50_000_records_a_second(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "20261120T101500-torch-ddp-net-3fa1")
    run.path.mkdir()
    run.config.write_text(to_toml(RunConfig(platform="cpu", devices=2)))
    command = [sys.executable, "-c", WRITER, str(run.path), "15"]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdin is not None
    assert writer.stdout is not None
    try:
        with Terminal([*TUIAPP, "attach", str(run.path)], environment={"LANG": "C.UTF-8"}) as terminal:
            terminal.wait("RUNNING", 60)
            terminal.wait_for_silence()
            writer.stdin.write("go\n")
            writer.stdin.flush()
            terminal.wait(r"record \d+", 30)
            latencies = [seconds for _ in range(20) for seconds in _press_and_see(terminal)]
            written, per_second = writer.stdout.readline().split()
            began = time.monotonic()
            terminal.wait("that was all", 120)
            behind = time.monotonic() - began
            terminal.process.kill(15)
            terminal.wait_exit()
    finally:
        writer.kill()
        writer.wait()
    numbers, reader = 0, JournalReader(run.journal)
    while events := reader.read():
        assert [event.seq for event in events] == list(range(numbers + 1, numbers + 1 + len(events)))
        numbers += len(events)
    assert numbers == int(written) + 2
    figures = f"key to screen median {1e3 * statistics.median(latencies):.0f} ms, longest {1e3 * max(latencies):.0f} ms"
    print(f"\n{float(per_second):,.0f} records/s: {figures}; all on the screen {behind:.1f} s after the last")
    within = sum(seconds <= 0.1 for seconds in latencies) / len(latencies)
    print(f"{within:.0%} of {len(latencies)} keys within 100 ms; load {os.getloadavg()[0]:.1f}")
    print(f"{numbers:,} records in the journal, none missing")
    assert statistics.median(latencies) < 1.0


def _press_and_see(terminal: Terminal) -> Iterator[float]:
    """Seconds until a panel that was given all the room has it, and until it has given it back."""
    for large in (True, False):
        began = time.monotonic()
        terminal.press("5")
        while ("3 ranks" in "\n".join(terminal.screen.display)) is large:
            assert time.monotonic() - began < 60
            terminal._pump(0.005)
        yield time.monotonic() - began
