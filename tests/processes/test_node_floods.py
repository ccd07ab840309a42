"""Far too much on a supervisor's port: from strangers, and from ranks that print without end."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.kit.harness import MLP, launched
from tests.kit.nodes import address_of, agent
from tests.kit.waiting import wait_until
from tuiapp.trainers.contract.events import Alert, Node
from tuiapp.trainers.run.handshake import MAX_UNAUTHENTICATED

pytestmark = pytest.mark.nightly

ON_TWO = msgspec.structs.replace(
    MLP, launcher="join", nodes=2, network="lo", node_grace_s=60.0, checkpoint_every=0, eval_every=0
)
GIGABYTE = 1 << 30
SPARE_BYTES = 96 << 20
"""Of a process of ours, beside what it keeps for the other side."""


def flood(address: tuple[str, int], total: int, ended: threading.Event) -> None:
    """Sends lines as fast as they are taken, over as many connections as that needs."""
    data = (b"x" * 4095 + b"\n") * 16
    while total > 0 and not ended.is_set():
        with suppress(OSError), socket.create_connection(address, timeout=5) as stranger:
            while total > 0 and not ended.is_set():
                stranger.sendall(data)
                total -= len(data)


@contextmanager
def in_threads(count: int, what: Callable[[threading.Event], None]) -> Iterator[list[threading.Thread]]:
    ended = threading.Event()
    threads = [threading.Thread(target=what, args=[ended], daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield threads
    finally:
        ended.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("connections", [1, 64])
def test_a_gigabyte_of_strangers_lines_costs_the_run_nothing(
    runs_dir: Path, fake: Callable[..., None], connections: int
) -> None:
    fake()
    with launched(ON_TWO, runs_dir) as run, agent(run):
        run.at_step(20)
        address, supervisor = address_of(run), psutil.Process(run.started.pid)
        began = supervisor.memory_info().rss
        with in_threads(connections, lambda ended: flood(address, GIGABYTE // connections, ended)) as threads:
            run.at_step(run.last_step(1) + 50)
            wait_until(lambda: not any(thread.is_alive() for thread in threads))
            run.at_step(run.last_step(1) + 50)
        grown = supervisor.memory_info().rss - began
        print(f"supervisor {grown / 1e6:+.1f} MB")
        assert grown < SPARE_BYTES
        assert not [alert for alert in run.of(Alert) if alert.kind == "node"]


def test_strangers_who_say_nothing_keep_no_node_out(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake()
    with launched(ON_TWO, runs_dir) as run:
        address = address_of(run)

        def hold(ended: threading.Event) -> None:
            while not ended.is_set():
                with suppress(OSError), socket.create_connection(address, timeout=1) as stranger:
                    while not ended.is_set():
                        with suppress(TimeoutError):
                            if len(stranger.recv(4096)) == 0:
                                break

        with in_threads(MAX_UNAUTHENTICATED, hold):
            supervisor = psutil.Process(run.started.pid)

            def strangers() -> int:
                kept = [one for one in supervisor.net_connections("tcp") if one.status == psutil.CONN_ESTABLISHED]
                return sum(one.laddr.port == address[1] for one in kept)

            wait_until(lambda: strangers() >= MAX_UNAUTHENTICATED)
            with agent(run):
                began = time.monotonic()
                run.wait(Node, seconds=10)
                print(f"joined after {time.monotonic() - began:.1f} s")
                run.at_step(3)
