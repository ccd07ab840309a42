"""Runs on two nodes, which are agents on this machine: the same training, and what becomes of it when one is lost."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.processes.harness import MLP, Watched, launched, resumed
from tests.processes.nodes import AGENT, address_of, agent, cable
from tests.processes.simulated import SimulatedAgent
from tests.waiting import wait_until
from trainers.config.run_config import RunConfig
from trainers.contract import mailbox
from trainers.contract.events import (
    Alert,
    Checkpoint,
    DeviceSample,
    LogLine,
    Node,
    Phase,
    RankFailed,
    TelemetrySource,
    place_name,
)

NAMED_S = 10.0
"""5 s by design, and what a loaded machine takes besides."""

ON_TWO = msgspec.structs.replace(MLP, launcher="join", nodes=2, network="lo", node_grace_s=60.0)
SHORT = msgspec.structs.replace(ON_TWO, epochs=1, max_steps=12)


@contextmanager
def on_two_nodes(config: RunConfig, runs_dir: Path) -> Iterator[Watched]:
    with launched(config, runs_dir) as run, agent(run):
        yield run


def test_two_nodes_train_as_one_machine_does(runs_dir: Path) -> None:
    with on_two_nodes(SHORT, runs_dir) as run:
        assert run.end().status == "completed"
        there = [run.losses(rank) for rank in (0, 1)]
        assert {event.node for event in run.of(Phase) if event.rank == 1} == {1}
        assert [event.state for event in run.of(Node)] == ["joined"]
        run.wait_gone()
        # Who has them could join another run of this user.
        assert not run.run.secret.exists()
        assert not run.run.port.exists()
    alone = msgspec.structs.replace(SHORT, launcher="local", nodes=1, network="")
    with launched(alone, runs_dir) as run:
        run.end()
        # A node with one rank gives it more threads: sums are rounded differently.
        for rank in (0, 1):
            assert run.losses(rank) == pytest.approx(there[rank], rel=1e-5)


def test_all_nodes_stop_after_the_same_step_and_resume_on_one_machine(
    runs_dir: Path, fake: Callable[..., None]
) -> None:
    fake()
    with on_two_nodes(ON_TWO, runs_dir) as run:
        run.at_step(5)
        mailbox.send(run.run.commands, "stop")
        assert run.end().status == "stopped"
        assert run.last_step(0) == run.last_step(1) == run.of(Checkpoint)[-1].step
        done = run.last_step(0)
        run.wait_gone()
        alone = msgspec.structs.replace(MLP, max_steps=done + 5)
        with resumed(run.run, alone) as again:
            assert again.end().status == "completed"
            assert again.steps_of(1)[0] == done + 1


def test_sigterm_to_tuiapp_join_stops_the_run(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake()
    with launched(ON_TWO, runs_dir) as run:
        host, port = address_of(run)
        join = [sys.executable, "-P", "-m", "tuiapp", "join", f"{host}:{port}", "--secret-file", str(run.run.secret)]
        with subprocess.Popen(join) as joined:
            run.at_step(3)
            joined.terminate()
            try:
                ended = run.end(30)
            finally:
                joined.kill()
            assert (ended.status, "SIGTERM on" in ended.reason) == ("stopped", True)


def test_a_run_that_waits_for_its_nodes_can_be_stopped(runs_dir: Path) -> None:
    with launched(ON_TWO, runs_dir) as run:
        text = run.wait(LogLine).text
        assert text.startswith("waiting for 1 more node: on each run `tuiapp join 127.0.0.1:")
        mailbox.send(run.run.commands, "stop")
        assert run.end().status == "stopped"
        run.wait_gone()


def test_a_killed_agent_is_named(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake()
    with launched(ON_TWO, runs_dir) as run, agent(run) as other:
        run.at_step(3)
        other.kill()
        failed = run.wait(Alert, lambda alert: alert.kind == "node", NAMED_S)
        assert failed.node == 1
        # Its reaper has ended its rank.
        wait_until(lambda: not [one for one in run.processes("trainers.runtime.rank") if rank_of(one) == "1"])


def test_a_killed_agent_is_the_first_cause_of_the_runs_failure(runs_dir: Path) -> None:
    with launched(ON_TWO, runs_dir) as run, agent(run) as other:
        run.at_step(3)
        other.kill()
        assert run.end(NAMED_S).reason.startswith(f"node 1 ({socket.gethostname()}) has been out of reach for ")
        run.wait_gone()


def rank_of(process: psutil.Process) -> str:
    try:
        return process.environ().get("RANK", "")
    except psutil.Error:
        return ""


def test_a_node_without_its_supervisor_ends_its_ranks(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake()
    with launched(ON_TWO, runs_dir) as run, agent(run) as other:
        run.at_step(3)
        os.kill(run.started.pid, signal.SIGKILL)
        assert other.wait(30) == 1
        run.wait_gone()


def test_no_record_is_lost_while_a_cable_is_cut(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake()
    with launched(ON_TWO, runs_dir) as run, cable(run) as line, agent(run, line.port):
        run.at_step(3)
        line.is_cut = True
        silent = run.wait(Alert, lambda alert: alert.kind == "node", NAMED_S)
        assert (silent.node, silent.ended) == (1, False)
        line.is_cut = False
        assert run.wait(Alert, lambda alert: alert.kind == "node" and alert.ended).node == 1
        run.at_step(run.last_step(1) + 20)
        steps = run.steps_of(1)
        assert steps == list(range(1, len(steps) + 1))


def test_a_cable_that_is_pulled_out_is_plugged_in_again(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake()
    with launched(ON_TWO, runs_dir) as run, cable(run) as line, agent(run, line.port):
        run.at_step(3)
        port = line.port
        line.close()
        with socket.create_server(("127.0.0.1", port)):
            # It answers nothing: the agent tries again.
            before = run.last_step(0)
            run.wait(Alert, lambda alert: alert.kind == "node", NAMED_S)
            assert run.last_step(0) > before


def test_a_node_that_stays_away_is_given_up(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake()
    config = msgspec.structs.replace(ON_TWO, node_grace_s=5.0)
    with launched(config, runs_dir) as run, cable(run) as line, agent(run, line.port) as other:
        run.at_step(3)
        line.is_cut = True
        ended = run.end(30)
        assert ended.status == "failed"
        assert "has been out of reach for 5 s" in ended.reason
        assert run.wait(RankFailed).lost
        # It ends its rank by itself, and has not heard why.
        assert other.wait(30) == 1
        run.wait_gone()


@pytest.mark.parametrize("whole", [False, True], ids=["agent", "whole node"])
def test_an_agent_that_is_stopped_for_good_ends_its_ranks_once_it_continues(runs_dir: Path, whole: bool) -> None:
    config = msgspec.structs.replace(ON_TWO, node_grace_s=5.0)
    with launched(config, runs_dir) as run, agent(run) as other:
        run.at_step(3)
        node = psutil.Process(other.pid)
        processes = [node, *(node.children(recursive=True) if whole else [])]
        for process in processes:
            process.suspend()
        assert run.end(30).reason.startswith(f"node 1 ({socket.gethostname()}) has been out of reach for 5 s")
        wait_until(lambda: not run.processes("trainers.runtime.supervisor"))
        for process in processes:
            process.resume()
        assert other.wait(30) == 1
        run.wait_gone()


def test_a_wrong_secret_is_refused_and_disturbs_nobody(runs_dir: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("0" * 64)
    with launched(SHORT, runs_dir) as run:
        with agent(run, secret=wrong) as stranger:
            assert stranger.wait(30) == 1
            assert stranger.stderr is not None
            assert "refuses this node: the secret is wrong" in stranger.stderr.read()
        with agent(run):
            run.wait(Node)
            with agent(run) as second:
                assert second.wait(30) == 1
            assert run.end().status == "completed"


def test_an_agent_finds_out_soon_that_no_run_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    done = subprocess.run([*AGENT, f"127.0.0.1:{port}"], input="0\n", capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert f"does not listen on port {port}: has its run ended?" in done.stderr


@pytest.mark.parametrize(
    "data",
    [b"GET / HTTP/1.1\r\n\r\n", b"\0" * (1 << 20), b"{}\n", b'{"nonce":"\xff"}\n'],
    ids=["http", "20 MB", "json", "no text"],
)
def test_garbage_on_the_port_is_dropped(runs_dir: Path, fake: Callable[..., None], data: bytes) -> None:
    fake()
    with launched(SHORT, runs_dir) as run:
        address = address_of(run)
        with socket.create_connection(address) as stranger, socket.create_connection(address), agent(run):
            with suppress(OSError):
                for _ in range(20):
                    stranger.sendall(data)
            assert run.end().status == "completed"


def test_what_an_agent_reports_names_its_node(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake()
    with launched(ON_TWO, runs_dir) as run:
        host, port = address_of(run)
        other = SimulatedAgent(host, port, run.run.secret.read_bytes().strip())
        other.report(Alert(kind="disk", text="the disk is nearly full"))
        other.report(TelemetrySource(source="NVML", problem="did not answer"))
        # Neither node's driver knows its first GPU's UUID.
        other.report(DeviceSample(index=0, uuid=place_name(0), name="", problem="GPU is lost"))
        other.advance()
        name = f"node 1 ({socket.gethostname()})"
        assert run.wait(Alert, lambda alert: alert.kind == "disk" and alert.node == 1).text.startswith(f"{name}: ")
        assert run.wait(TelemetrySource, lambda source: source.node == 1).source == f"NVML on {name}"
        assert run.wait(DeviceSample, lambda sample: sample.node == 1).uuid == "at place 0 of node 1"
        mailbox.send(run.run.commands, "stop-now")
        while not other.finished:
            other.advance()
