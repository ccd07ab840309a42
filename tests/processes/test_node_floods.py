"""Two nodes: floods from strangers and ranks, unequal numbers of devices, scripts of one's own."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.kit.close import assert_close, in_training
from tests.kit.harness import MLP, Watched, launched, resumed
from tests.kit.nodes import AGENT, address_of, agent
from tests.kit.own_scripts import curve
from tests.kit.variants import mostly_by_hand
from tests.kit.waiting import wait_until
from tests.processes.test_script import of_script
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import Alert, Checkpoint, LogLine, Metrics, Node, RankStarted
from tuiapp.trainers.contract.rundir import SECRET_VARIABLE
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


ON_THREE = msgspec.structs.replace(
    MLP, launcher="join", nodes=3, devices=4, devices_per_node="1+2+1", network="lo", node_grace_s=60.0
)
TWO_AND_ONE = msgspec.structs.replace(ON_THREE, nodes=2, devices=3, devices_per_node="2+1", epochs=1, max_steps=12)
END_S = 300.0


@contextmanager
def joined(run: Watched, node: int = 0) -> Iterator[subprocess.Popen[str]]:
    """An agent that joins as a node; 0: as any."""
    host, port = address_of(run)
    environment = {**os.environ, SECRET_VARIABLE: str(run.run.secret)}
    command = [*AGENT, f"{host}:{port}", str(node)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def places(run: Watched) -> list[tuple[int, int]]:
    """Each rank and its node."""
    return sorted((event.rank, event.node) for event in run.of(RankStarted))


def test_each_machine_joins_as_the_node_it_says(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake()
    with launched(ON_THREE, runs_dir) as run:
        said = run.wait(LogLine).text
        assert said.endswith("--node N`, where N is 1 for 2 devices and 2 for 1 devices")
        with joined(run, 2):
            assert run.wait(Node).node == 2
            for number, why in ((2, "node 2 has joined already"), (3, "there is no node 3 to join as, only 1 to 2")):
                with joined(run, number) as refused:
                    assert refused.stderr is not None
                    assert why in refused.stderr.read()
            with joined(run, 1):
                run.at_step(3)
                assert places(run) == [(0, 0), (1, 1), (2, 1), (3, 2)]
                sidecars.send_command(run.run.commands, "stop")
                assert run.end().status == "stopped"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "backend", mostly_by_hand(["jax-sharding", "keras-jax", "keras-torch", "torch-fsdp"], "torch-fsdp")
)
def test_every_backend_trains_and_resumes_on_uneven_nodes(runs_dir: Path, backend: str) -> None:
    config = msgspec.structs.replace(
        TWO_AND_ONE, backend=backend, model="net", optimizer="sgd", learning_rate=0.001, eval_every=1
    )
    alone = msgspec.structs.replace(config, launcher="local", nodes=1, network="", devices_per_node="")
    with launched(alone, runs_dir) as one:
        assert one.end(END_S).status == "completed"
        wanted, evaluated = [one.losses(rank) for rank in range(3)], one.evaluations()
    with launched(config, runs_dir) as two, joined(two):
        assert two.end(END_S).status == "completed"
        assert places(two) == [(0, 0), (1, 0), (2, 1)]
        # Rounding alone, as above: with OMP_NUM_THREADS=1 PyTorch's are the same bit for bit. A wrong weight of a
        # node's part would show from the second step on. Not with Adam, which divides what is near zero by itself.
        for rank in range(3):
            assert_close(two.losses(rank), wanted[rank], in_training(config, parts=3))
        assert_close(two.evaluations()[0].loss, evaluated[0].loss, in_training(config))
        two.wait_gone()
        further = msgspec.structs.replace(config, max_steps=16)
        with resumed(two.run, further) as again, joined(again):
            assert again.end(END_S).status == "completed"
            assert again.steps_of(2) == [13, 14, 15, 16]


@contextmanager
def on_two_nodes(config: RunConfig, runs_dir: Path, home: Path | None) -> Iterator[Watched]:
    config = msgspec.structs.replace(config, devices=2, launcher="join", nodes=2, network="lo")
    with launched(config, runs_dir) as run, agent(run, home=home):
        yield run


def test_all_nodes_stop_at_the_step_that_they_agree_on(tmp_path: Path, runs_dir: Path) -> None:
    config = of_script(
        tmp_path,
        """
        import time, tuiapp
        run = tuiapp.init()
        step = 0
        while not run.should_stop():
            step += 1
            if run.should_checkpoint():
                run.checkpoint(f"rank-{run.rank}", step=step)
            tuiapp.log({"loss": 1 / step}, step=step)
            time.sleep(0.01 * (1 + run.rank))
        """,
    )
    with on_two_nodes(config, runs_dir, tmp_path / "node-b") as run:
        for rank in (0, 1):
            run.wait(Metrics, lambda event, rank=rank: event.rank == rank and event.last_step > 5)  # type: ignore[misc]
        sidecars.send_command(run.run.commands, "checkpoint")
        for rank in (0, 1):
            run.wait(Checkpoint, lambda event, rank=rank: event.name == f"rank-{rank}")  # type: ignore[misc]
        assert len({event.step for event in run.of(Checkpoint)}) == 1
        sidecars.send_command(run.run.commands, "stop")
        assert run.end().status == "stopped"
        assert len({max(curve(run, rank, "loss")) for rank in (0, 1)}) == 1


def test_metrics_in_the_output_and_in_event_files_of_every_node(tmp_path: Path, runs_dir: Path) -> None:
    config = of_script(
        tmp_path,
        """
        import os
        from torch.utils.tensorboard import SummaryWriter
        rank = int(os.environ["RANK"])
        with SummaryWriter("logs") as writer:
            for step in range(1, 4):
                writer.add_scalar("lr", step + 10 * rank, step)
                if rank == 1:  # as Megatron does, the last one
                    print(f"step {step} loss {step / 2}")
        """,
        output_pattern=r"step (?P<step>\d+) loss (?P<loss>\S+)",
        tensorboard_dir=str(tmp_path / "logs"),
    )
    with on_two_nodes(config, runs_dir, tmp_path / "node-b") as run:
        assert run.end().status == "completed"
        assert curve(run, 1, "loss") == {1: 0.5, 2: 1.0, 3: 1.5}
        for rank in (0, 1):
            assert curve(run, rank, "lr") == {step: step + 10 * rank for step in range(1, 4)}
        assert not [line for line in run.of(LogLine) if "found no number" in line.text or "no scalar" in line.text]
