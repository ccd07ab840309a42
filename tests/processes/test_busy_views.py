"""A view that is flooded: the keyboard is served, the journal is complete."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.terminal import Terminal
from tuiapp.trainers.config.run_config import RunConfig, to_toml
from tuiapp.trainers.contract.journal import JournalReader
from tuiapp.trainers.contract.rundir import RunDir

pytestmark = pytest.mark.nightly

TUIAPP = [sys.executable, "-P", "-m", "tuiapp"]
KEYS, FLOOD_S = 200, 25.0


WRITER = textwrap.dedent(
    """
    import sys, time
    from pathlib import Path
    from tuiapp.trainers.contract.events import LogLine, RunStarted
    from tuiapp.trainers.contract.journal import JournalWriter
    from tuiapp.trainers.contract.rundir import RunDir

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


@pytest.mark.by_hand
@pytest.mark.timeout(300)
def test_50_000_records_a_second(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "20261120T101500-torch-ddp-net-3fa1")
    run.path.mkdir()
    run.config.write_text(to_toml(RunConfig(platform="cpu", devices=2)))
    command = [sys.executable, "-c", WRITER, str(run.path), str(FLOOD_S)]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdin is not None
    assert writer.stdout is not None
    try:
        with Terminal([*TUIAPP, "attach", str(run.path)], environment={"LANG": "C.UTF-8"}) as terminal:
            terminal.wait("RUNNING", 60)
            terminal.wait_for_silence()
            writer.stdin.write("go\n")
            writer.stdin.flush()
            over = time.monotonic() + FLOOD_S
            terminal.wait(r"record \d+", 30)
            latencies: list[float] = []
            while len(latencies) < KEYS and time.monotonic() < over:
                latencies += _press_and_see(terminal)
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
    for large, title in ((True, b"5 log"), (False, b"3 ranks")):
        began = time.monotonic()
        terminal.press("5")
        yield _seen(terminal, title, large) - began


def _seen(terminal: Terminal, title: bytes, large: bool) -> float:
    """When the panel has all the room, or has given it back: the title that was not there before has come."""
    deadline, arrivals = time.monotonic() + 60, terminal.gather(lambda come: title in come, 60)
    while time.monotonic() < deadline:
        for at, data in arrivals:
            terminal.show(data)
            if ("3 ranks" in "\n".join(terminal.screen.display)) is not large:
                return at
        arrivals = terminal.gather(bool, 0.5)
    raise AssertionError(terminal.text)
