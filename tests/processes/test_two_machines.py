"""Runs on several machines with networks of their own: real ranks, and cables that are pulled out."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.kit.cluster import Machines, machines
from tests.kit.harness import Watched, watching
from tests.kit.waiting import wait_until
from tuiapp.trainers.contract.events import Alert, Node
from tuiapp.trainers.contract.rundir import RunDir

pytestmark = pytest.mark.nightly

TUIAPP = [sys.executable, "-P", "-m", "tuiapp"]
NAMED_S = 15.0
"""5 s by design, and what a loaded machine takes besides."""


@pytest.fixture
def two() -> Iterator[Machines]:
    with machines() as made:
        yield made


@contextmanager
def on_all(
    made: Machines,
    runs_dir: Path,
    *settings: str,
    count: int = 2,
    each: int = 1,
    own: Mapping[int, Mapping[str, str]] = MappingProxyType({}),
) -> Iterator[Watched]:
    """A run that is launched on the first machine, as a person does, and joined by the others, in their order.

    Args:
        each: Devices on each machine.
        own: Environment variables of a machine.
    """
    environments = [{**os.environ, **own.get(number, {})} for number in range(count)]
    given = ["model=mlp", "platform=cpu", f"devices={count * each}", "launcher=join", f"nodes={count}", "network=eth0"]
    keys = [word for setting in (*given, *settings) for word in ("--set", setting)]
    command = made.command(0, *TUIAPP, "run", "--runs-dir", str(runs_dir), "--detach", "--json", *keys)
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environments[0])
    with ExitStack() as ended, watching(RunDir(Path(json.loads(done.stdout)["directory"]))) as run:
        wait_until(run.run.port.exists)
        address = run.run.port.read_text().strip()
        assert address.startswith(f"{made.address(0)}:")
        join = [*TUIAPP, "join", address, "--secret-file", str(run.run.secret)]
        for number in range(1, count):
            joined = subprocess.Popen(made.command(number, *join), env=environments[number])
            # Once the processes of the run are ended below, the agents end by themselves.
            ended.callback(joined.wait)
            run.wait(Node, lambda node, number=number: node.node == number)  # type: ignore[misc]
        yield run


def test_a_cut_of_some_seconds_costs_nothing(two: Machines, runs_dir: Path) -> None:
    with on_all(two, runs_dir, "epochs=100000", "checkpoint_every=0", "eval_every=0") as run:
        run.at_step(5)
        two.cut(1)
        silent = run.wait(Alert, lambda alert: alert.kind == "node", 15)
        two.heal(1)
        assert silent.text.startswith("node 1 (")
        run.wait(Alert, lambda alert: alert.kind == "node" and alert.ended)
        for rank in (0, 1):
            run.at_step(run.last_step(rank) + 20)
            steps = run.steps_of(rank)
            assert steps == list(range(1, len(steps) + 1))


def test_a_hang_while_a_node_does_not_answer_blames_none_of_its_ranks(
    two: Machines, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUIAPP_HANG_S", "10")
    with on_all(two, runs_dir, "epochs=100000", "checkpoint_every=0", "eval_every=0") as run:
        run.at_step(5)
        two.cut(1)
        hang = run.wait(Alert, lambda alert: alert.kind == "hang", 60)
        name = socket.gethostname()
        assert re.search(rf": node 1 \({name}\) does not answer; the other ranks are at step [\d,]+$", hang.text)
        assert hang.rank is None
        two.heal(1)
        run.wait(Alert, lambda alert: alert.kind == "hang" and alert.ended, 120)


def test_a_cut_for_good_is_named_and_leaves_no_process(two: Machines, runs_dir: Path) -> None:
    with on_all(two, runs_dir, "epochs=100000", "node_grace_s=10") as run:
        run.at_step(5)
        two.cut(1)
        ended = run.end(30)
        assert ended.status == "failed"
        assert ended.reason.startswith("node 1 (")
        assert [event.state for event in run.of(Node)] == ["joined", "silent", "lost"]
        run.wait_gone(60)


@pytest.mark.by_hand
@pytest.mark.parametrize(("sender", "receiver"), [(0, 1), (1, 0)])
def test_a_connection_that_is_half_open(two: Machines, runs_dir: Path, sender: int, receiver: int) -> None:
    with on_all(two, runs_dir, "epochs=100000", "checkpoint_every=0", "eval_every=0", "node_grace_s=15") as run:
        run.at_step(5)
        two.cut_one_way(sender, receiver)
        run.wait(Alert, lambda alert: alert.kind == "node", NAMED_S)
        two.heal_one_way(sender, receiver)
        run.wait(Alert, lambda alert: alert.kind == "node" and alert.ended)
        run.at_step(run.last_step(1) + 20)
        for rank in (0, 1):
            steps = run.steps_of(rank)
            assert steps == list(range(1, len(steps) + 1))
        two.cut_one_way(sender, receiver)
        cut = time.monotonic()
        assert run.end(40).reason.startswith("node 1 (")
        # The agent counts from when it last heard the supervisor: its ranks do not train on after the run.
        run.wait_gone(60)
        print(f"all gone {time.monotonic() - cut:.0f} s after the cut")
