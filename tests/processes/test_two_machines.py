"""Runs on two machines with networks of their own: real ranks, and a cable that is pulled out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.processes.cluster import Machines, machines
from tests.processes.harness import Watched, watching
from tests.waiting import wait_until
from trainers.contract.events import Alert, Node
from trainers.contract.rundir import RunDir

TUIAPP = [sys.executable, "-P", "-m", "tuiapp"]


@pytest.fixture
def two() -> Iterator[Machines]:
    with machines() as made:
        yield made


@contextmanager
def on_both(two: Machines, runs_dir: Path, *settings: str) -> Iterator[Watched]:
    """A run that is launched on the first, as a person does, and joined by the second."""
    given = ["model=mlp", "platform=cpu", "devices=2", "launcher=join", "nodes=2", "network=eth0", *settings]
    keys = [word for setting in given for word in ("--set", setting)]
    command = [*TUIAPP, "run", "--runs-dir", str(runs_dir), "--detach", "--json", *keys]
    done = subprocess.run(two.command(0, *command), capture_output=True, text=True, check=True, timeout=60)
    with watching(RunDir(Path(json.loads(done.stdout)["directory"]))) as run:
        wait_until(run.run.port.exists)
        address = run.run.port.read_text().strip()
        assert address.startswith(f"{two.address(0)}:")
        join = [*TUIAPP, "join", address, "--secret-file", str(run.run.secret)]
        with subprocess.Popen(two.command(1, *join), env=dict(os.environ)) as joined:
            try:
                yield run
            finally:
                for process in run.processes():
                    process.kill()
                joined.kill()


def test_a_cut_of_some_seconds_costs_nothing(two: Machines, runs_dir: Path) -> None:
    with on_both(two, runs_dir, "epochs=100000", "checkpoint_every=0", "eval_every=0") as run:
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


@pytest.mark.slow
def test_a_cut_for_good_is_named_and_leaves_no_process(two: Machines, runs_dir: Path) -> None:
    with on_both(two, runs_dir, "epochs=100000", "node_grace_s=10") as run:
        run.at_step(5)
        two.cut(1)
        ended = run.end(30)
        assert ended.status == "failed"
        assert ended.reason.startswith("node 1 (")
        assert [event.state for event in run.of(Node)] == ["joined", "silent", "lost"]
        run.wait_gone(60)
