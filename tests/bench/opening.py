"""How long a finished run takes to open: `python -m tests.bench.opening --steps N --ranks R [--json]`.

Makes a run directory with the journal and the digest that the supervisor leaves of N steps of each of R ranks (see
`tests.bench.stream`), or takes the one of that size that an earlier call kept, and opens it five times in the real
program in a pty of 120 x 40: from the program's start until header, curves over their whole width, ranks and the last
line of the log stand on the screen. Beside it the processor time, which a busy machine does not change, and the most
memory the program's processes ever had resident.

Ten million steps of eight ranks take 2 GB of disk and about three minutes to make; they are removed unless `--keep`
names a directory. `--without-digest` shows what it takes to read the whole journal.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import psutil

from tests.bench.dashboard import Home, watch
from tests.bench.stream import BATCH_STEPS, record
from tests.kit.terminal import Terminal
from tuiapp.trainers.contract.rundir import RunDir

ROUNDS = 5
PATIENCE_S = 600.0


def is_drawn(terminal: Terminal, steps: int, ranks: int) -> bool:
    """Whether header, curves, as many ranks as there is room for, and log stand on the screen."""
    lines = terminal.screen.display
    text = "\n".join(lines)
    # The table has room for seven places.
    rows = sum(f"{steps:,}"[:6] in line and "done" in line for line in lines)
    curve = [
        place for line in lines for place, each in enumerate(line[:36]) if each == "◆" or "\u2800" < each <= "\u28ff"
    ]
    # Of the first of two charts.
    spread = bool(curve) and max(curve) >= 33 and min(curve) <= 16
    all_steps = f"{steps:,}/{steps:,}"
    return "COMPLETED" in text and all_steps in text and rows >= min(ranks, 8) - 1 and spread and "completed" in text


def open_run(home: Home, run: RunDir, steps: int, ranks: int) -> tuple[float, float, float]:
    """Seconds until it is drawn, seconds of processor time until half a second after that, and MB at most."""
    with watch(home, run) as terminal:
        arrivals = terminal.gather(lambda come: b"COMPLETED" in come, PATIENCE_S, quiet_s=0.7)
        program = psutil.Process(terminal.process.pid)
        times = program.cpu_times()
        peak = sum(_peak_megabytes(one) for one in (program, *program.children(recursive=True)))
        drawn = None
        for at, data in arrivals:
            terminal.show(data)
            if is_drawn(terminal, steps, ranks):
                drawn = at
                break
        assert drawn is not None, terminal.text
    return drawn - terminal.began, times.user + times.system, peak


def _peak_megabytes(process: psutil.Process) -> float:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) * 1024 / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description="How long a finished run takes to open.")
    parser.add_argument("--steps", type=int, default=100_000, help=f"of each rank, a multiple of {BATCH_STEPS}")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--keep", type=Path, help="where the run is kept for the next call")
    parser.add_argument("--without-digest", action="store_true")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    options = parser.parse_args()
    steps, ranks = options.steps // BATCH_STEPS * BATCH_STEPS, options.ranks
    with ExitStack() as stack:
        place = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        home = Home(place)
        run = home.run(f"{steps}-{ranks}")
        if not run.digest.exists():
            began = time.monotonic()
            size = record(run, steps, ranks)
            print(f"made a journal of {size / 1e9:.2f} GB in {time.monotonic() - began:.0f} s", file=sys.stderr)
        if options.without_digest:
            run.digest.rename(run.path / "aside")
        try:
            rounds = [open_run(home, run, steps, ranks) for _ in range(ROUNDS)]
        finally:
            if options.without_digest:
                (run.path / "aside").rename(run.digest)
        seconds, used, peaks = zip(*rounds, strict=True)
        megabytes = max(peaks)
        journal, digest = run.journal.stat().st_size, run.digest.stat().st_size
    found = {"seconds": round(statistics.median(seconds), 3), "megabytes": round(megabytes, 1)}
    print(
        f"{steps:,} steps x {ranks} ranks: opened in {found['seconds']:.2f} s, {min(seconds):.2f} to {max(seconds):.2f}"
        f" s; {statistics.median(used):.2f} s of processor time; "
        f"{megabytes:.0f} MB at most; journal {journal / 1e6:,.0f} MB, digest {digest / 1e6:.1f} MB"
    )
    if options.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
