"""What a list of a thousand runs costs, and comparing eight long ones: `python -m tests.bench.runs`.

Makes the runs in a temporary directory: each a journal of a real run's shape, of 30 kB. Timed are the list by itself,
the command and the screen's first rows and full table in a pty, the list also without the statuses that supervisors
write, what a look costs when nothing changed, a sort and a filter, by themselves and from the key to the screen, the
reading of eight journals of 100,000 steps of two ranks for the Compare screen, and one such run's export; then the
share of a core that the screen takes while 20 runs of 2 ranks take 20 steps a second each: without charts, with those
of one run, and with all 20 marked, at 120 x 40 and 200 x 60.
`--live` measures that alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import psutil
from msgspec.structs import replace as replace_fields
from textual.widgets import Input

from tests.bench.dashboard import Home, key_latencies, share_of_core
from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.recorded import record
from tests.kit.run_app import until
from tests.kit.runs_app import ListLister, RunsApp, info
from tests.kit.terminal import Terminal
from tuiapp.feeds.compare_feed import CompareFeed
from tuiapp.library.export import export_to
from tuiapp.library.run_index import RunIndex
from tuiapp.trainers.contract.events import AnyEvent
from tuiapp.trainers.contract.lock import Liveness
from tuiapp.trainers.contract.rundir import RunDir, find_run_dirs
from tuiapp.trainers.contract.status import Details, write_status
from tuiapp.trainers.state.status import known
from tuiapp.trainers.state.summary import summarise

ROUNDS = 5
LIVE, LIVE_S = 20, 24.0
TUIAPP = [sys.executable, "-P", "-m", "tuiapp"]


def _name(number: int) -> str:
    day, second = divmod(number, 3600)
    return f"202611{1 + day % 28:02}T10{second // 60:02}{second % 60:02}-torch-ddp-net-{number % 65536:04x}"


def _make_runs(root: Path, count: int) -> None:
    histories = [h.completed(), interrupted.failed(), interrupted.stopped()]
    made = [record(root, _name(number), events) for number, events in enumerate(histories)]
    for number in range(len(made), count):
        shutil.copytree(made[number % len(made)].path, root / _name(number))


def _make_long(root: Path, number: int, steps: int) -> RunDir:
    events: list[AnyEvent] = [h.started()]
    for first in range(1, steps, 50):
        events += [h.steps(rank, first, first + 49, first / 50) for rank in range(2)]
    return record(root, _name(number), [*events, h.ended("completed", steps / 50, step=steps)])


def _show(name: str, wall: list[float], busy: list[float] | None = None) -> None:
    processor = f"   processor {statistics.median(busy):.3f} s" if busy else ""
    print(
        f"{name:44} median {statistics.median(wall):.3f} s   {min(wall):.3f} to {max(wall):.3f} s{processor}",
        flush=True,
    )


def _write_statuses(root: Path) -> None:
    """Writes what a supervisor leaves: the runs were recorded without one."""
    for run in find_run_dirs(root):
        now = known(run, Liveness.NOBODY)
        write_status(run, now.status, now.facts, Details())


def _time_index(root: Path, words: str = "") -> None:
    figures: dict[str, tuple[list[float], list[float]]] = {}
    for _ in range(ROUNDS):
        index = RunIndex(root)
        for name in (f"listed{words}", f"looked at again, nothing changed{words}"):
            walls, busies = figures.setdefault(name, ([], []))
            began, worked = time.perf_counter(), time.process_time()
            index.read_all()
            walls.append(time.perf_counter() - began)
            busies.append(time.process_time() - worked)
    for name, (walls, busies) in figures.items():
        _show(name, walls, busies)


def _time_command(root: Path, *arguments: str) -> None:
    wall: list[float] = []
    busy: list[float] = []
    for _ in range(ROUNDS):
        began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([*TUIAPP, "--runs-dir", str(root), *arguments], capture_output=True, check=True)
        wall.append(time.perf_counter() - began)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        busy.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    if "--json" in arguments:
        json.loads(done.stdout)
    _show(f"tuiapp {' '.join(arguments)}", wall, busy)


def _time_screen(root: Path, count: int, home: str) -> None:
    walls: dict[str, list[float]] = {}
    busies: dict[str, list[float]] = {}
    memory: list[int] = []
    environment = {"HOME": home, "XDG_CONFIG_HOME": home, "XDG_CACHE_HOME": home}
    for _ in range(ROUNDS):
        with Terminal([*TUIAPP, "--runs-dir", str(root)], environment=environment) as terminal:
            terminal.wait(r"(?s)quickstart.*\$ tuiapp run")
            process = psutil.Process(terminal.process.pid)
            terminal.wait_for_silence()
            began, worked = time.monotonic(), sum(process.cpu_times()[:2])
            terminal.press("ctrl+g")
            terminal.wait("20261101T10")
            walls.setdefault("Ctrl+G to the first rows", []).append(time.monotonic() - began)
            terminal.wait(rf"{count:,} runs")
            walls.setdefault(name := "Ctrl+G to the full table", []).append(time.monotonic() - began)
            busies.setdefault(name, []).append(sum(process.cpu_times()[:2]) - worked)
            memory.append(process.memory_info().rss)
    for name, wall in walls.items():
        _show(name, wall, busies.get(name))
    print(f"{'':44} {max(memory) / 2**20:.0f} MiB resident")


async def _time_keys(count: int) -> None:
    """Times a sort and a filter on the screen of runs that differ in rate and seed, five of each rate."""
    runs = [info(n, learning_rate=0.1 / (1 + n // 5), seed=n % 5) for n in range(count, 0, -1)]
    runs = [
        replace(one, summary=replace_fields(one.summary, test_accuracy=n * 7919 % 997 / 997))
        for n, one in enumerate(runs)
    ]
    app = RunsApp(ListLister(runs))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: len(app.rows) > 10)
        screen = app.runs_screen
        for folded in (True, False):
            sorts, filters = list[float](), list[float]()
            for text, name, busy in [("", "loss", sorts), ("lr<0.05 test/accuracy>0.5", "speed", filters)] * ROUNDS:
                with screen.prevent(Input.Changed):
                    screen.query_one("#filter", Input).value = text
                worked = time.process_time()
                screen.action_sort(name)
                await pilot.pause()
                busy.append(time.process_time() - worked)
            for what, busy in (("sorted", sorts), ("filtered", filters)):
                _show(f"{what} on the screen, {'groups folded' if folded else 'no groups'}", busy)
            screen.action_fold()


def _time_keys_to_screen(root: Path, count: int, home: str) -> None:
    """Times a sort and a letter of a filter from the key to the heading that tells of it."""
    environment = {"HOME": home, "XDG_CONFIG_HOME": home, "XDG_CACHE_HOME": home}
    listed, some = f"{count:,} runs".encode(), f"of {count:,}".encode()
    with Terminal([*TUIAPP, "--runs-dir", str(root)], environment=environment) as terminal:
        terminal.wait("quickstart")
        terminal.press("ctrl+g")
        terminal.wait(listed.decode())
        process = psutil.Process(terminal.process.pid)
        for name, keys in (
            ("sort", [("0", b"sorted by name"), ("8", b"sorted by ")]),
            ("filter", [("f", some), ("backspace", listed)]),
        ):
            if name == "filter":
                terminal.press("/")
            terminal.wait_for_silence()
            worked = sum(process.cpu_times()[:2])
            found = [each / 1e3 for each in key_latencies(terminal, keys)]
            busy = (sum(process.cpu_times()[:2]) - worked) / len(found)
            _show(f"key to screen of a {name} ({os.getloadavg()[0]:.0f} wait for a core)", found, [busy])


def _time_reading(runs: list[RunDir]) -> None:
    process = psutil.Process()
    before, size = process.memory_info().rss, sum(os.stat(run.journal).st_size for run in runs)
    feed = CompareFeed(list(map(summarise, runs)))
    began, worked = time.perf_counter(), time.process_time()
    feed.start()
    while any(run.progress is not None for run in feed.runs):
        time.sleep(0.01)
    print(
        f"{'8 long runs read for Compare':44} {time.perf_counter() - began:.3f} s   processor "
        f"{time.process_time() - worked:.3f} s   {size / 2**20:.0f} MiB of journals, "
        f"{(process.memory_info().rss - before) / 2**20:.0f} MiB more resident"
    )
    feed.close()


def _time_export(run: RunDir, home: Path) -> None:
    forms = ("csv", "jsonl", "parquet")
    for form in forms:
        target, began, worked = home / f"steps.{form}", time.perf_counter(), time.process_time()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        rows = export_to(target, run, "steps", form)
        print(
            f"{f'{rows:,} steps exported as {form}':44} {time.perf_counter() - began:.3f} s   processor "
            f"{time.process_time() - worked:.3f} s   {os.stat(target).st_size / 2**20:.0f} MiB written, "
            f"{(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024:.0f} MiB more at its peak"
        )


def _time_live(home: Path) -> None:
    place = Home(home)
    command = [sys.executable, "-m", "tests.bench.live_runs", str(place.runs), str(LIVE), "4000", "400"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout
            writer.stdout.readline()
            for size in ((120, 40), (200, 60)):
                with Terminal(TUIAPP, *size, environment=place.environment) as terminal:
                    terminal.wait(r"quickstart")
                    terminal.press("ctrl+g")
                    terminal.wait(rf"{LIVE} runs · {LIVE} running")
                    terminal.wait("by step")
                    _show_share(terminal, f"{LIVE} live runs at {size[0]} x {size[1]}, one charted")
                    terminal.press("C")
                    _show_share(terminal, "the same without charts")
                    terminal.press("C")
                    terminal.press("home")
                    for _ in range(LIVE):
                        terminal.press("x")
                        terminal.press("down")
                    terminal.wait(f"{LIVE} marked")
                    _show_share(terminal, f"the same, {LIVE} charted")
        finally:
            writer.kill()


def _show_share(terminal: Terminal, name: str) -> None:
    share_of_core(terminal, 4)
    shares = [share_of_core(terminal, LIVE_S / 3) for _ in range(3)]
    found, rate = [share for share, _ in shares], max(rate for _, rate in shares)
    print(
        f"{name:44} {statistics.median(found):.1f} % of a core, {min(found):.1f} to {max(found):.1f} %; "
        f"{rate:.0f} kB/s to the terminal",
        flush=True,
    )


def main() -> None:
    """Make the runs and time them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=1000)
    parser.add_argument("--live", action="store_true", help="measure the screen of live runs alone")
    options = parser.parse_args()
    count = options.count
    with tempfile.TemporaryDirectory() as home:
        if options.live:
            _time_live(Path(home) / "live")
            return
        root = Path(home) / "runs"
        _make_runs(root, count)
        print(f"{count:,} runs")
        os.environ["XDG_CACHE_HOME"] = os.environ["XDG_STATE_HOME"] = os.environ["HOME"] = home
        _time_index(root, ", without statuses")
        _write_statuses(root)
        _time_index(root)
        _time_command(root, "runs")
        _time_command(root, "runs", "--json")
        _time_command(root, "--version")
        _time_screen(root, count, home)
        asyncio.run(_time_keys(count))
        _time_keys_to_screen(root, count, home)
        long = [_make_long(Path(home) / "long", number, 100_000) for number in range(8)]
        _time_reading(long)
        _time_export(long[0], Path(home))
        _time_live(Path(home) / "live")


if __name__ == "__main__":
    main()
