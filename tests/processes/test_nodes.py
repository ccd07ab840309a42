"""Runs on two nodes, which are agents on this machine: the same training, and what becomes of it when one is lost."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.kit.close import assert_close, in_training
from tests.kit.harness import MLP, Watched, launched, resumed
from tests.kit.nodes import address_of, agent, cable
from tests.kit.simulated import SimulatedAgent
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import (
    Alert,
    Checkpoint,
    DeviceSample,
    LogLine,
    Node,
    Phase,
    RankFailed,
    RunEnded,
    Summary,
    TelemetrySource,
    place_name,
)
from tuiapp.trainers.run.rank_environment import LOOPBACK
from tuiapp.trainers.run.wire import RankAttached, RankExited

NAMED_S = 10.0
"""5 s by design, and what a loaded machine takes besides."""

ON_TWO = msgspec.structs.replace(MLP, launcher="join", nodes=2, network="lo", node_grace_s=60.0)
SHORT = msgspec.structs.replace(ON_TWO, epochs=1, max_steps=12)


@contextmanager
def on_two_nodes(config: RunConfig, runs_dir: Path) -> Iterator[Watched]:
    with launched(config, runs_dir) as run, agent(run):
        yield run


@pytest.mark.nightly
def test_all_nodes_stop_after_the_same_step_and_resume_on_one_machine(
    runs_dir: Path, fake: Callable[..., None]
) -> None:
    fake()
    with on_two_nodes(ON_TWO, runs_dir) as run:
        run.at_step(5)
        sidecars.send_command(run.run.commands, "stop")
        assert run.end().status == "stopped"
        assert run.last_step(0) == run.last_step(1) == run.of(Checkpoint)[-1].step
        done = run.last_step(0)
        run.wait_gone()
        alone = msgspec.structs.replace(MLP, max_steps=done + 5)
        with resumed(run.run, alone) as again:
            assert again.end().status == "completed"
            assert again.steps_of(1)[0] == done + 1


@pytest.mark.nightly
def test_a_node_that_shares_no_directory_is_handed_the_checkpoint_to_resume_from(
    tmp_path: Path, runs_dir: Path
) -> None:
    with on_two_nodes(SHORT, runs_dir) as run:
        assert run.end().status == "completed"
        whole = [run.losses(rank) for rank in (0, 1)]
    with on_two_nodes(msgspec.structs.replace(SHORT, max_steps=5), runs_dir) as run:
        assert run.end().status == "completed"
        run.wait_gone()
        home = tmp_path / "node-b"
        with resumed(run.run, SHORT) as again, agent(again, home=home):
            assert again.end().status == "completed"
            said = next(line.text for line in again.of(LogLine) if "does not share" in line.text)
            assert said == f"node 1 (node-b) does not share {run.run.path}: it is sent step-00000005"
            for rank in (0, 1):
                assert again.steps_of(rank) == list(range(6, 13))
                assert_close(again.losses(rank), whole[rank][5:], in_training(SHORT, parts=2))
            assert not [alert for alert in again.of(Alert) if alert.kind == "replicas"]
            there, here = (
                {path.name: path.read_bytes() for path in (place / "step-00000005").iterdir()}
                for place in (home / "tuiapp/nodes" / run.run.run_id / "checkpoints", run.run.checkpoints)
            )
            assert there == here
            again.wait_gone()


@pytest.mark.nightly
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


@pytest.mark.nightly
def test_a_killed_agent_is_the_first_cause_of_the_runs_failure(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake()
    with launched(ON_TWO, runs_dir) as run, agent(run) as other:
        run.at_step(3)
        other.kill()
        assert run.end(NAMED_S).reason.startswith(f"node 1 ({socket.gethostname()}) has been out of reach for ")
        run.wait_gone()


@contextmanager
def listening(count: int) -> Iterator[list[int]]:
    """Yield consecutive ports on which somebody listens, followed by two that are free."""
    with ExitStack() as stack:
        while True:
            first = stack.enter_context(socket.create_server((LOOPBACK, 0))).getsockname()[1]
            with suppress(OSError), ExitStack() as free:
                taken = [stack.enter_context(socket.create_server((LOOPBACK, first + n))) for n in range(1, count)]
                for number in (count, count + 1):
                    free.enter_context(socket.create_server((LOOPBACK, first + number)))
                break
        yield [first, *(server.getsockname()[1] for server in taken)]


@pytest.mark.nightly
def test_nodes_meet_on_ports_that_a_firewall_lets_through(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake()
    with listening(2) as taken:
        low, high = taken[0], taken[-1] + 2
        config = msgspec.structs.replace(ON_TWO, master_port=f"{low}-{high}")
        with launched(config, runs_dir) as run, agent(run):
            assert address_of(run)[1] == high - 1
            run.at_step(3)
            ports = {one.environ()["MASTER_PORT"] for one in run.processes("tuiapp.trainers.rank.process")}
            assert ports == {str(high)}


@pytest.mark.nightly
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


@pytest.mark.nightly
def test_stop_now_does_not_wait_for_a_mute_node(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake()
    config = msgspec.structs.replace(ON_TWO, devices=8)
    with launched(config, runs_dir) as run, agent(run) as other:
        run.at_step(3)
        processes = [psutil.Process(other.pid), *psutil.Process(other.pid).children(recursive=True)]
        for process in processes:
            process.suspend()
        began = time.monotonic()
        sidecars.send_command(run.run.commands, "stop-now")
        ended = run.end(30)
        seconds = time.monotonic() - began
        said = [line.text for line in run.of(LogLine) if line.rank is None]
        print(f"\nstop --now with a mute node: {seconds:.1f} s, {len(said)} lines")
        assert (ended.status, "on request" in ended.reason) == ("stopped", True)
        assert seconds < 5
        assert len([text for text in said if "did not end on SIGTERM" in text]) <= 4
        assert [node.state for node in run.of(Node)][-1] == "lost"
        for process in processes:
            # What the silence has ended is gone.
            with suppress(psutil.NoSuchProcess):
                process.resume()
        assert other.wait(30) == 1
        run.wait_gone()


def test_a_wrong_secret_is_refused_and_disturbs_nobody(
    runs_dir: Path, tmp_path: Path, fake: Callable[..., None]
) -> None:
    fake()
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


def test_a_node_speaks_for_its_own_ranks_alone(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake()
    ended = RunEnded(status="completed", reason="forged", summary=Summary())
    with launched(ON_TWO, runs_dir) as run:
        host, port = address_of(run)
        other = SimulatedAgent(host, port, run.run.secret.read_bytes().strip())
        while other.ranks != [1]:
            other.advance()
        for rank in (0, -7, 10**9):
            other.channel.send(RankAttached(rank))
            other.send_of_rank(rank, Phase(rank=rank, phase="done"))
            other.send_of_rank(1, Phase(rank=rank, phase="done"))
            other.report(LogLine(rank=rank, stream="stdout", text="forged"))
            other.channel.send(RankExited(rank, RankFailed(rank=rank, error="forged")))
        other.send_of_rank(1, ended)
        for event in (ended, Phase(rank=1, phase="done"), Node(node=1, host="forged", state="lost")):
            other.report(event)
        # What follows is heard.
        other.report(LogLine(rank=1, stream="stdout", text="its own"))
        other.advance()
        run.wait(LogLine, lambda line: line.text == "its own")
        (said,) = (alert.text for alert in run.of(Alert) if alert.kind == "node")
        assert said == f"node 1 ({socket.gethostname()}) reports rank 0, which is not its own: dropped"
        assert b"forged" not in run.run.journal.read_bytes()
        assert not [phase for phase in run.of(Phase) if phase.phase == "done"]
        assert not run.of(RunEnded)
        sidecars.send_command(run.run.commands, "stop-now")
        while not other.finished:
            other.advance()
        assert run.end().status == "stopped"


@pytest.mark.nightly
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
        sidecars.send_command(run.run.commands, "stop-now")
        while not other.finished:
            other.advance()
