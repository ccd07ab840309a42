"""Line 8, and what listens: no port is fixed, and nothing listens beyond loopback."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.kit.harness import MLP, Watched, launched, watching
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.launch import launch

pytestmark = pytest.mark.nightly

SHORT = msgspec.structs.replace(MLP, max_steps=10)
LOOPBACK = ("127.0.0.1", "::1", "::ffff:127.0.0.1")


def _listening(run: Watched) -> list[tuple[str, int]]:
    """Where the run's processes listen."""
    found = []
    for process in run.processes():
        try:
            connections = process.net_connections(kind="inet")
        except psutil.Error:
            continue
        found += [(one.laddr.ip, one.laddr.port) for one in connections if one.status == psutil.CONN_LISTEN]
    return found


def _two_at_once(runs_dir: Path, config: RunConfig) -> None:
    """Launch two runs at the same moment and wait until both are complete."""
    runs: list[RunDir] = []
    ready = threading.Barrier(2)

    def start() -> None:
        ready.wait()
        runs.append(launch(config, runs_dir))

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with watching(runs[0]) as one, watching(runs[1]) as other:
        for run in (one, other):
            assert run.end().status == "completed"


def test_two_runs_started_at_once(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake(step=0.05)
    for _ in range(3):
        _two_at_once(runs_dir, SHORT)


@pytest.mark.parametrize(
    "backend",
    [
        "torch-ddp",
        pytest.param("jax-sharding", marks=pytest.mark.nightly),
        pytest.param("keras-torch", marks=pytest.mark.nightly),
    ],
)
def test_nothing_listens_beyond_loopback(runs_dir: Path, backend: str) -> None:
    config = msgspec.structs.replace(MLP, backend=backend)
    with launched(config, runs_dir) as run:
        run.at_step(5)
        found = _listening(run)
        print(f"\n{backend}: listens on {sorted({f'{ip}' for ip, _ in found})}, {len(found)} sockets")
        assert [one for one in found if one[0] not in LOOPBACK] == []
        # The store of rank 0 and gloo's own sockets are there at all.
        assert found or backend == "jax-sharding"
