"""Runs on nodes with unequal numbers of devices, which are agents on this machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.kit.close import assert_close, in_training
from tests.kit.harness import MLP, Watched, launched, resumed
from tests.kit.nodes import AGENT, address_of
from tests.kit.variants import mostly_by_hand
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import LogLine, Node, RankStarted
from tuiapp.trainers.contract.rundir import SECRET_VARIABLE

pytestmark = pytest.mark.nightly

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
