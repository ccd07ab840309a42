"""A run on 65 nodes of 8 ranks: `python -m tests.bench.nodes [SECONDS [STEPS_PER_SECOND]]`; takes two minutes.

64 simulated agents, in a process of their own, join a real run over TCP and send what real ones do: of each rank five
batches of steps a second and a heartbeat, of each node a sample a second of its host, its ranks and its GPUs. The
first node's ranks are a script that sleeps. Measured are, for SECONDS (60) and over the same time:

- the journal: records and bytes per second;
- the supervisor: its share of a core, its memory, and how far its journal is behind the agents;
- the dashboard, in a pty of 120 x 40 with its devices' and ranks' panels: the time until it shows the run, its share
  of a core, its memory.

Beside them stands the machine's load: on a busy machine all of them take turns.
"""

from __future__ import annotations

import math
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from tests.bench.dashboard import Home, share_of_core, watch
from tests.kit.harness import Watched
from tests.kit.reported import step_event
from tests.kit.simulated import SimulatedAgent
from tests.kit.waiting import wait_until
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import (
    DeviceSample,
    HostSample,
    LogLine,
    Metrics,
    Phase,
    RankSample,
    RankStarted,
    RunStarted,
    Shard,
    Sharding,
)
from tuiapp.trainers.contract.metrics import LOSS
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.launch import launch
from tuiapp.trainers.run.wire import Heartbeat

NODES, EACH = 65, 8
WORLD = NODES * EACH
BATCHES_PER_SECOND = 5
MOST_ENTRIES = 10
"""Of a batch: the journal keeps 50 entries a second and rank."""
ARRAYS = 12
WAIT = "import signal\nsignal.pause()\n"


class Node:
    """What one node's ranks and samplers say."""

    def __init__(self, agent: SimulatedAgent, steps_per_second: int) -> None:
        self.agent = agent
        self._dice = random.Random(agent.node)
        self._steps = max(1, steps_per_second // BATCHES_PER_SECOND)
        self._window = -(-self._steps // MOST_ENTRIES)
        self._pace = 1 / BATCHES_PER_SECOND / self._steps
        self._done = 0

    def begin(self) -> None:
        for rank in self.agent.ranks:
            uuid = f"GPU-{rank:08}"
            name = f"cuda:{rank % EACH}"
            self.agent.send_of_rank(rank, RankStarted(rank=rank, pid=1000 + rank, device=name, uuid=uuid))
            for number in range(ARRAYS):
                shape = [128 * WORLD, 256] if number < 2 else [512, 512]
                rows = (128 * rank, 128 * rank + 128) if number < 2 else (0, 512)
                shard = Shard(rank=rank, device=name, index=[rows, (0, shape[1])], bytes=1 << 18)
                spec = ["data" if number < 2 else None, None]
                array = f"parameter {number}" if number > 1 else ("batch", "labels")[number]
                self.agent.send_of_rank(
                    rank,
                    Sharding(
                        array=array, shape=shape, dtype="float32", mesh={"data": WORLD}, spec=spec, shards=[shard]
                    ),
                )
            self.agent.send_of_rank(rank, Phase(rank=rank, phase="training"))

    def batch(self, rank: int) -> Metrics:
        entries = -(-self._steps // self._window)
        losses = [2.2 * math.exp(-self._done / 20_000) + self._dice.gauss(0, 0.05) for _ in range(entries)]
        joined = self._window > 1
        return step_event(
            rank,
            self._done + 1,
            losses,
            seconds=[self._pace * (1 + 0.02 * self._dice.random()) for _ in range(entries)],
            examples=32 * self._window,
            counts=[self._window] * entries if joined else None,
            lows={LOSS: [one - 0.03 for one in losses]} if joined else None,
            highs={LOSS: [one + 0.03 for one in losses]} if joined else None,
        )

    def batches(self) -> None:
        """What its ranks report of a fifth of a second."""
        for rank in self.agent.ranks:
            self.agent.send_of_rank(rank, self.batch(rank))
        self._done += self._steps // self._window * self._window

    def second(self, number: int) -> None:
        """What comes once a second."""
        dice, ranks = self._dice, self.agent.ranks
        self.agent.report(
            HostSample(
                cpu_percent=40 + 20 * dice.random(), cpu_percent_per_core=[50 * dice.random() for _ in range(64)],
                cpu_cores=64, load_1m=30.0, memory_used_bytes=int(9e10 + 1e9 * dice.random()),
                memory_total_bytes=512 << 30, disk_free_bytes=1 << 40, network_rx_bytes_per_s=1e9 * dice.random(),
                network_tx_bytes_per_s=1e9 * dice.random(),
            )
        )  # fmt: skip
        for rank in ranks:
            self.agent.send_of_rank(rank, Heartbeat(rank, self._done, "training"))
            self.agent.report(RankSample(rank=rank, cpu_percent=95 + dice.random(), rss_bytes=4 << 30, threads=40))
            self.agent.report(
                DeviceSample(
                    index=rank % EACH, uuid=f"GPU-{rank:08}", name="NVIDIA H200",
                    utilization_percent=90 + 10 * dice.random(), memory_used_bytes=int(1e11 * dice.random()),
                    memory_total_bytes=139 << 30, power_w=600 * dice.random(), power_limit_w=700.0,
                    temperature_c=60 + 10 * dice.random(), temperature_limit_c=87.0, sm_clock_mhz=1980.0,
                    energy_j=600.0 * number, throttle_reasons=[], processes=[],
                )
            )  # fmt: skip
        if number % 10 == self.agent.node % 10:
            self.agent.report(LogLine(rank=ranks[0], stream="stdout", text=f"second {number} passed"))


def simulate(address: str, secret: Path, steps_per_second: int) -> None:
    """Serves all other nodes until the run ends."""
    host, _, port = address.rpartition(":")
    nodes = [
        Node(SimulatedAgent(host, int(port), secret.read_text().strip().encode()), steps_per_second)
        for _ in range(NODES - 1)
    ]
    while not all(node.agent.ranks for node in nodes):
        for node in nodes:
            node.agent.advance()
        time.sleep(0.01)
    for node in nodes:
        node.begin()
    # Spread over the time between two batches, as clocks of machines are.
    began = time.monotonic() + 2
    due = [[began + place / BATCHES_PER_SECOND / NODES, 0.0] for place in range(len(nodes))]
    while not all(node.agent.finished for node in nodes):
        now = time.monotonic()
        for node, times in zip(nodes, due, strict=True):
            if node.agent.ranks and now >= times[0]:
                node.batches()
                if times[1] % BATCHES_PER_SECOND == 0:
                    node.second(int(times[1]) // BATCHES_PER_SECOND)
                times[0], times[1] = times[0] + 1 / BATCHES_PER_SECOND, times[1] + 1
            node.agent.advance()
        time.sleep(0.005)


def journal_of(run: RunDir) -> tuple[int, int]:
    """The journal's size in bytes, and the number of its last record."""
    size = run.journal.stat().st_size
    with run.journal.open("rb") as file:
        file.seek(max(0, size - 65536))
        numbers = re.findall(rb'"seq":(\d+)', file.read())
    return size, int(numbers[-1])


def measure(home: Home, seconds: float, steps_per_second: int) -> None:
    script = home.runs.parent / "wait.py"
    script.write_text(WAIT)
    config = RunConfig(
        backend="script", script=str(script), platform="cpu", devices=WORLD, nodes=NODES, launcher="join", network="lo",
    )  # fmt: skip
    watched = Watched(launch(config, home.runs))
    run = watched.run
    wait_until(run.port.exists, 60)
    address = run.port.read_text().strip()
    command = [
        sys.executable,
        "-m",
        "tests.bench.nodes",
        "agents",
        address,
        str(run.secret),
        str(steps_per_second),
    ]
    supervisor = psutil.Process(watched.wait(RunStarted).pid)
    with subprocess.Popen(command) as agents:
        try:
            wait_until(lambda: journal_of(run)[1] > 20 * WORLD, 120)
            # Into the steady state, and past the first digest.
            time.sleep(15)
            began = time.monotonic()
            with watch(home, run) as terminal:
                terminal.wait("RUNNING")
                opened = time.monotonic() - began
                share_of_core(terminal, 5)
                size, records = journal_of(run)
                before, started = supervisor.cpu_times(), time.monotonic()
                views = {"overview": "", "ranks": "3", "devices": "2"}
                shares, written = {}, {}
                for name, key in views.items():
                    if key:
                        terminal.press(key)
                        share_of_core(terminal, 2)
                    shares[name], written[name] = share_of_core(terminal, seconds / len(views))
                passed, after = time.monotonic() - started, supervisor.cpu_times()
                size, records = (now - then for now, then in zip(journal_of(run), (size, records), strict=True))
                used = after.user + after.system - before.user - before.system
                dashboard = psutil.Process(terminal.process.pid).memory_info().rss
                memory = supervisor.memory_info().rss
                behind = time.time() - last_time(run)
        finally:
            sidecars.send_command(run.commands, "stop-now")
            try:
                watched.end(60)
            finally:
                agents.kill()
    print(f"{NODES - 1} nodes x {EACH} ranks, {steps_per_second} steps/s")
    print(f"journal       {records / passed:,.0f} records/s   {size / passed / 1e6:.2f} MB/s   {behind:.1f} s behind")
    print(f"supervisor    {100 * used / passed:.0f} % of a core   {memory / 1e6:.0f} MB")
    print(f"dashboard     open in {opened:.1f} s   {dashboard / 1e6:.0f} MB   (25 %)")
    for name, share in shares.items():
        print(f"  {name:<12}{share:.1f} % of a core   {written[name]:.1f} kB/s")


def last_time(run: RunDir) -> float:
    """When the last record of a rank was made."""
    with run.journal.open("rb") as file:
        file.seek(max(0, run.journal.stat().st_size - 65536))
        return float(re.findall(rb'"type":"metrics","seq":\d+,"time":([\d.]+)', file.read())[-1])


def main() -> None:
    if sys.argv[1:2] == ["agents"]:
        simulate(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
        return
    given = [int(one) for one in sys.argv[1:]]
    seconds, steps = [*given, *(60, 10)[len(given) :]]
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as directory:
        measure(Home(Path(directory)), seconds, steps)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
