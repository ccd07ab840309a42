"""Runs whose agents are started by ssh: a real sshd on a machine with a network of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import gethostname

import psutil
import pytest

from tests.kit.harness import Watched, watching
from tests.kit.sshd import Sshd, sshd
from tests.kit.waiting import wait_until
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import Node
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.run.handshake import VERSION

pytestmark = pytest.mark.nightly

TRY = "`ssh -o BatchMode=yes {host} true` must work"
INSTALL = f"tuiapp {VERSION} must be installed there for {sys.executable}; see agent-1.log"
TUIAPP = [sys.executable, "-P", "-m", "tuiapp"]


@pytest.fixture
def server() -> Iterator[Sshd]:
    with sshd() as started:
        yield started


@contextmanager
def by_ssh(server: Sshd, runs_dir: Path, *settings: str, hosts: str = "node-b") -> Iterator[Watched]:
    given = ["model=mlp", "platform=cpu", "devices=2", "launcher=ssh", "nodes=2", f"hosts={hosts}", "network=eth0"]
    keys = [word for setting in (*given, "eval_every=0", *settings) for word in ("--set", setting)]
    command = server.command(*TUIAPP, "run", "--runs-dir", str(runs_dir), "--detach", "--json", *keys)
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    with watching(RunDir(Path(json.loads(done.stdout)["directory"]))) as run:
        yield run


def client_of(run: Watched) -> psutil.Process:
    """The process of ssh on the first machine."""
    supervisor = psutil.Process(run.started.pid)
    return next(child for child in supervisor.children() if child.name() == "ssh")


def agent_of(server: Sshd) -> psutil.Process:
    return next(
        one for one in server.process.children(recursive=True) if "tuiapp.trainers.run.node" in " ".join(one.cmdline())
    )


def test_two_nodes_complete(server: Sshd, runs_dir: Path) -> None:
    with by_ssh(server, runs_dir, "max_steps=12") as run:
        assert run.end().status == "completed"
        assert [event.state for event in run.of(Node)] == ["joined"]
        assert run.steps_of(1) == list(range(1, 13))
        run.wait_gone()
        wait_until(lambda: not server.process.children())


@pytest.mark.by_hand
@pytest.mark.parametrize(
    ("host", "said", "cure"),
    [
        ("node-closed", "Connection refused", TRY),
        ("node-stranger", "Permission denied", TRY),
        ("no-such-host.invalid", "Could not resolve hostname", TRY),
        ("node-empty", "not found", INSTALL),
        ("node-bare", "No module named 'tuiapp'", INSTALL),
        ("node-old", f"tuiapp 0.0.1 is on {gethostname()}, {VERSION} on ", "install the same on both"),
    ],
)
def test_a_host_that_cannot_be_a_node_ends_the_run_with_what_to_do(
    server: Sshd, runs_dir: Path, host: str, said: str, cure: str
) -> None:
    with by_ssh(server, runs_dir, hosts=host) as run:
        reason = run.end().reason
        print(reason)
        assert reason.startswith(f"the agent on {host} could not be started: ")
        assert said in reason
        assert cure.format(host=host) in reason
        run.wait_gone()
        wait_until(lambda: not server.process.children())


@pytest.mark.by_hand
def test_training_continues_without_ssh_and_the_node_ends_with_its_supervisor(server: Sshd, runs_dir: Path) -> None:
    with by_ssh(server, runs_dir, "epochs=100000", "checkpoint_every=0") as run:
        run.at_step(3)
        client_of(run).kill()
        run.at_step(run.last_step(1) + 20)
        psutil.Process(run.started.pid).kill()
        run.wait_gone()
        wait_until(lambda: not server.process.children())


def test_a_killed_agent_leaves_nothing_behind(server: Sshd, runs_dir: Path) -> None:
    with by_ssh(server, runs_dir, "epochs=100000", "checkpoint_every=0") as run:
        run.at_step(3)
        agent_of(server).kill()
        assert run.end().reason.startswith("node 1 (")
        run.wait_gone()
        wait_until(lambda: not server.process.children())


def test_a_stop_while_ssh_waits_for_a_silent_host(server: Sshd, runs_dir: Path) -> None:
    with by_ssh(server, runs_dir) as run:
        server.two.cut(1)
        sidecars.send_command(run.run.commands, "stop")
        assert run.end(10).status == "stopped"
        run.wait_gone()
        server.two.heal(1)
        wait_until(lambda: not server.process.children())
