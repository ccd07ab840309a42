"""What a run of thousands of metrics takes to open and to search: `python -m tests.bench.metrics`.

Makes two runs of a script with one rank and as many values, as the supervisor leaves them: 5,000 metrics × 1,000 steps
in events of ten, and 5 metrics × 1,000,000 steps in events of fifty. Each is opened in the real program in a pty of
120 x 40, from its digest and from its journal alone: from the start until state and curve stand on the screen, and the
processor time until half a second after. Then a name is typed into the list of metrics, key by key.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.bench.dashboard import Home, watch
from tests.bench.opening import _peak_megabytes
from tests.kit.terminal import Terminal
from tuiapp.trainers.config.run_config import RunConfig, to_toml_values
from tuiapp.trainers.contract.events import Event, Metrics, RankStarted, RunEnded, RunStarted, Summary, encode
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state import snapshot
from tuiapp.trainers.state.fold import apply

MANY, STEPS, BATCH = 5000, 1000, 10
FEW, LONG, LONG_BATCH = 5, 1_000_000, 50
ROUNDS = 5


def _events(names: list[str], steps: int, batch: int) -> Iterator[Event]:
    start = time.time() - 3600

    def at(step: int) -> dict[str, Any]:
        return {"time": start + 3000 * step / steps, "mono": 100.0 + 3000 * step / steps}

    config = to_toml_values(RunConfig(backend="script", script="train.py", platform="cpu", devices=1))
    yield RunStarted(
        run_id="", host="box", pid=1, config=config, world_size=1, steps_per_epoch=0, total_steps=steps, **at(0)
    )
    yield RankStarted(rank=0, pid=100, device="cpu", **at(0))
    for first in range(1, steps + 1, batch):
        falls = [0.1 + 2 * math.exp(-5 * step / steps) for step in range(first, first + batch)]
        values: dict[str, list[float | None]] = {
            name: [fall * (1 + number % 7 / 7) for fall in falls] for number, name in enumerate(names)
        }
        yield Metrics(rank=0, first_step=first, values=values, **at(first + batch - 1))
    summary = Summary(steps=steps, loss=0.1, seconds=3000)
    yield RunEnded(status="completed", reason="", summary=summary, **at(steps))


def _record(run: RunDir, names: list[str], steps: int, batch: int) -> None:
    state, size, seq, took = snapshot.new_state(), 0, 0, 0.0
    with run.journal.open("wb") as file:
        for event in _events(names, steps, batch):
            seq += 1
            line = encode(event)
            began = time.process_time()
            apply(state, event)
            took += time.process_time() - began
            size += file.write(line)
    began = time.process_time()
    snapshot.save(run, state, size, line)
    print(
        f"{len(names):,} metrics x {steps:,} steps: journal {size / 1e6:.0f} MB, "
        f"digest {run.digest.stat().st_size / 1e6:.1f} MB; "
        f"the digest took {took:.2f} s, and {time.process_time() - began:.2f} s to write",
        flush=True,
    )


def _open(home: Home, run: RunDir) -> tuple[float, float, float]:
    with watch(home, run) as terminal:
        seconds = terminal.wait(r"(?s)COMPLETED.*[\u2801-\u28ff]{3}")
        terminal.wait_for_silence()
        program = psutil.Process(terminal.process.pid)
        times = program.cpu_times()
        return seconds, times.user + times.system, _peak_megabytes(program)


def _search(home: Home, run: RunDir) -> tuple[float, list[float]]:
    """Seconds until the list is there, and from each key to what it finds."""
    with watch(home, run) as terminal:
        terminal.wait("COMPLETED")
        terminal.wait_for_silence()
        opened = _time(terminal, "m", "Search")
        found = [_time(terminal, key, None) for key in "layer499 weight9"]
        terminal.wait("layer499/weight9")
        return opened, found


def _time(terminal: Terminal, key: str, wanted: str | None) -> float:
    seen, began = len(terminal.raw), time.monotonic()
    terminal.press(key)
    if wanted:
        terminal.wait(wanted)
    while len(terminal.raw) == seen:
        terminal._pump(0.002)
    took = time.monotonic() - began
    terminal.wait_for_silence()
    return took


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        home = Home(Path(place))
        many, few = home.run("5000"), home.run("0005")
        _record(many, ["loss", *(f"layer{n // 10}/weight{n % 10}" for n in range(1, MANY))], STEPS, BATCH)
        _record(few, ["loss", *(f"layer{n}" for n in range(1, FEW))], LONG, LONG_BATCH)
        for words in ("from the digest", "from the journal alone"):
            for run in (many, few):
                seconds, used, peaks = zip(*(_open(home, run) for _ in range(ROUNDS)), strict=True)
                name = f"{MANY:,} metrics" if run is many else f"{FEW} metrics"
                print(
                    f"{name} opened {words}: {statistics.median(seconds):.2f} s, "
                    f"{min(seconds):.2f} to {max(seconds):.2f} s; "
                    f"{statistics.median(used):.2f} s of processor time, {max(peaks):.0f} MB at most",
                    flush=True,
                )
            if words == "from the digest":
                opened, found = _search(home, many)
                print(
                    f"list of metrics after {opened * 1e3:.0f} ms; "
                    f"a key of the search {statistics.median(found) * 1e3:.0f} ms, longest {max(found) * 1e3:.0f} ms"
                )
                for run in (many, few):
                    run.digest.unlink()


if __name__ == "__main__":
    main()
