"""A run that goes through, with real torch ranks."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import msgspec
import pytest

from tests.kit.close import assert_close, in_training
from tests.kit.harness import Watched, launched
from tests.kit.nodes import agent
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import Node, Phase, RankSample, RankStarted, Sharding
from tuiapp.trainers.state.status import read_config
from tuiapp.trainers.state.summary import summarise

CONFIG = RunConfig(model="net", platform="cpu", devices=2, epochs=2, checkpoint_every=1)
SHORT = RunConfig(model="mlp", platform="cpu", devices=2, epochs=1)


def test_a_run_from_first_to_last_event(runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Often enough for a fast machine's ranks to be sampled before they are through.
    monkeypatch.setenv("TUIAPP_TELEMETRY_S", "0.25")
    with launched(CONFIG, runs_dir) as run:
        end = run.end()
        run.wait_gone()
        assert end.status == "completed", end
        total = make_plan(CONFIG).total_steps
        assert run.steps_of(0) == run.steps_of(1) == list(range(1, total + 1))
        assert [event.seq for event in run.events] == list(range(1, len(run.events) + 1))
        assert end is run.events[-1]

        evaluations = run.evaluations()
        assert [(one.step, one.examples) for one in evaluations] == [
            (epoch * make_plan(CONFIG).steps_per_epoch, 360) for epoch in (1, 2)
        ]
        assert end.summary.test_accuracy == evaluations[-1].accuracy >= 0.9
        assert end.summary.steps == total
        assert end.summary.epochs == 2
        assert end.summary.examples_per_second is not None

        assert {phase.phase for phase in run.of(Phase)} == {
            "preparing",
            "training",
            "evaluating",
            "checkpointing",
            "done",
        }
        assert {started.rank for started in run.of(RankStarted)} == {0, 1}
        assert {sample.rank for sample in run.of(RankSample)} == {0, 1}
        assert not run.run.is_live()
        assert summarise(run.run).status == "completed"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home, where `short` is made."""
    return tmp_path_factory.mktemp("short")


@pytest.fixture(scope="module")
def short(place: Path) -> Watched:
    """A run of one epoch that is over, made by a user who withholds nothing from others."""
    with pytest.MonkeyPatch.context() as environment:
        # It is made before the home that each test has of its own.
        environment.setenv("HOME", str(place))
        for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
            environment.delenv(name, raising=False)
        # torch sets it when another test of this process compiles.
        environment.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
        before = os.umask(0)
        try:
            with launched(SHORT, place / "data" / "runs") as run:
                assert run.end().status == "completed"
                run.wait_gone()
        finally:
            os.umask(before)
    return run


def test_each_rank_reports_its_own_loss_and_its_own_slice(short: Watched) -> None:
    losses = {rank: short.losses(rank) for rank in (0, 1)}
    assert len(losses[0]) == len(losses[1]) == 29
    assert all(a != b for a, b in zip(losses[0], losses[1], strict=True))

    shardings = short.of(Sharding)
    batch = {shard.rank: shard for event in shardings if event.array == "batch" for shard in event.shards}
    assert [batch[rank].index[0] for rank in (0, 1)] == [(0, 24), (24, 48)]
    assert all(shard.bytes == 24 * 28 * 28 * 4 for shard in batch.values())
    parameter = [event for event in shardings if event.array == "parameter fc1.weight"]
    assert {event.shards[0].rank for event in parameter} == {0, 1}
    assert all(event.spec == [None, None] for event in parameter)
    assert all(event.shards[0].index == [(0, 256), (0, 784)] for event in parameter)


def test_what_lies_in_the_run_directory(short: Watched, place: Path) -> None:
    # What was automatic is exact, so that relaunching the file reproduces the run.
    config = read_config(short.run)
    assert (config.platform, config.devices, config.epochs) == ("cpu", 2, 1)
    environment = json.loads(short.run.environment.read_text())
    assert environment["versions"]["torch"].startswith("2.")
    for path in (place / "data", *(place / "data").rglob("*")):
        expected = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == expected, path
    assert list(short.run.commands.iterdir()) == []
    # The frameworks make their caches, which hold code, as the umask says.
    for path in (place / ".cache", place / ".cache" / "tuiapp", place / ".cache" / "tuiapp" / "torch"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700, path


def test_two_nodes_train_as_one_machine_does(short: Watched, runs_dir: Path) -> None:
    config = msgspec.structs.replace(SHORT, launcher="join", nodes=2, network="lo", max_steps=12)
    with launched(config, runs_dir) as run, agent(run):
        assert run.end().status == "completed"
        assert {event.node for event in run.of(Phase) if event.rank == 1} == {1}
        assert [event.state for event in run.of(Node)] == ["joined"]
        # A node with one rank gives it more threads: sums are rounded differently.
        for rank in (0, 1):
            assert_close(run.losses(rank), short.losses(rank)[:12], in_training(config, parts=2))
        run.wait_gone()
        # Who has them could join another run of this user.
        assert not run.run.secret.exists()
        assert not run.run.port.exists()
