"""Two nodes and a full disk: training continues if it can, else node, directory and cure are named."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.kit.disks import Disk, small_disk
from tests.kit.harness import Gate, Watched, launched
from tests.kit.nodes import address_of, agent
from tests.kit.variants import mostly_nightly
from tests.kit.waiting import wait_until
from tests.processes.test_full_disk import check_complete, goes_on
from tests.processes.test_nodes import NAMED_S, ON_TWO
from tuiapp.trainers.contract import mailbox
from tuiapp.trainers.contract.events import Alert, Checkpoint, RankFailed

pytestmark = pytest.mark.nightly

CONFIG = msgspec.structs.replace(ON_TWO, checkpoint_every=0, eval_every=0)
FULL = "No space left on device"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "disk") as made:
        yield made


def own_directory(disk: Disk, run: Watched) -> Path:
    return disk.path / "home" / "tuiapp" / "nodes" / run.run.run_id


def test_a_node_whose_disk_is_full_from_the_start_is_named(runs_dir: Path, disk: Disk, no_framework: None) -> None:
    with launched(CONFIG, runs_dir) as run:
        address_of(run)
        with agent(run, home=disk.path / "home", before=lambda: disk.fill(0)) as other:
            said = run.end(NAMED_S).reason
            assert said.startswith(f"node 1 (node-b) cannot start its ranks: {FULL}: {own_directory(disk, run)}; ")
            assert "set XDG_DATA_HOME" in said
            assert other.wait(NAMED_S) == 0
        run.wait_gone()


@pytest.mark.parametrize("fault", ["raise", "exit"])
def test_what_a_rank_raises_arrives_from_a_node_whose_disk_is_full(
    runs_dir: Path, tmp_path: Path, disk: Disk, fake: Callable[..., None], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    gate = Gate(tmp_path / "gate")
    monkeypatch.setenv("TUIAPP_TEST_GATE", str(gate.path))
    fake(f"{fault}-gated:1:5")
    with launched(CONFIG, runs_dir) as run, agent(run, home=disk.path / "home"):
        run.at_step(4)
        disk.fill(0)
        gate.open()
        ended = run.end()
        [failed] = [one for one in run.of(RankFailed) if one.rank == 1]
        if fault == "raise":
            assert ended.reason == "rank 1 on node 1 failed at step 4: ValueError: the test's own failure"
            assert "the test's own failure" in failed.traceback
        else:
            lost = f"no space is left for its logs in {own_directory(disk, run) / 'ranks' / '1'}"
            assert ended.reason == f"rank 1 on node 1 exited with code 3 at step 4, and what it said is lost: {lost}"
        run.wait_gone()


@pytest.mark.parametrize("ends", mostly_nightly(["stopped", "room again"], "room again"))
def test_the_shared_runs_directory_fills_up(
    disk: Disk, ends: str, fake: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(step=0.001)
    # A checkpoint needs more room than the journal.
    monkeypatch.setenv("TUIAPP_TEST_WEIGHTS", "500000")
    with launched(CONFIG, disk.path / "runs") as run, agent(run) as other:
        run.at_step(5)
        mailbox.send(run.run.commands, "checkpoint")
        kept = run.run.checkpoints / run.wait(Checkpoint).name
        disk.fill(500_000)
        mailbox.send(run.run.commands, "checkpoint")
        refused = run.wait(Alert, lambda alert: alert.kind == "checkpoint", NAMED_S)
        assert f"was not saved: {FULL}; earlier checkpoints are intact" in refused.text
        disk.fill(0)
        wait_until(lambda: FULL in run.run.lock_note().trouble, NAMED_S)
        goes_on(run)
        last = run.last_step(0)
        if ends == "stopped":
            os.kill(run.started.pid, signal.SIGTERM)
            # The agent's ranks end, too, and it waits for no room.
            assert other.wait(NAMED_S) == 0
            wait_until(lambda: not run.processes("tuiapp.trainers.rank.process"), NAMED_S)
        disk.make_room()
        if ends == "room again":
            run.at_step(last + 20)
            mailbox.send(run.run.commands, "stop-now")
        check_complete(run, FULL)
        assert [path.name for path in run.run.checkpoints.iterdir()] == [kept.name]
        run.wait_gone()
