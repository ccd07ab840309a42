"""The fold, driven by a table of event histories."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import pytest

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.folding import fold
from tuiapp.trainers.contract.events import Alert, Event, LogLine, Phase, RankFailed, Shard, Sharding, StopRequested
from tuiapp.trainers.contract.metrics import LOSS, TEST_ACCURACY
from tuiapp.trainers.state.condition import headline, rank_condition
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import MAX_LOG_LINES, RunState


@dataclass(frozen=True)
class Case:
    name: str
    events: Sequence[Event]
    status: str
    step: int
    phase: str = ""
    lost: bool = False


RUNNING = h.running()
STOPPING = [*RUNNING, StopRequested(by="command", **h.at(9))]

CASES = [
    Case("nothing yet", [], "starting", 0),
    Case("the supervisor alone", [h.started()], "running", 0, "preparing"),
    Case("up to the first step", h.beginning(), "running", 0, "training"),
    Case("in its middle", RUNNING, "running", 130, "training"),
    Case("8 ranks", h.running(8), "running", 130, "training"),
    Case("completed", h.completed(), "completed", 290),
    Case("failed", interrupted.failed(), "failed", 72),
    Case("not finite for a while", interrupted.with_nan(), "running", 100, "training"),
    Case("asked to stop", STOPPING, "running", 130, "stopping"),
    Case("stopped", [*STOPPING, h.ended("stopped", 9.5, reason="command", step=130)], "stopped", 130),
    Case("the beginning is missing", h.training(), "running", 130),
    Case("asked to save and stop", interrupted.stopped()[:-1], "running", 72, "stopping"),
    Case("stopped with a checkpoint", interrupted.stopped(), "stopped", 72),
    Case("resumed", [*interrupted.stopped(), *interrupted.resumed()], "running", 82, "training"),
    Case(
        "resumed twice",
        [*interrupted.stopped(), *interrupted.resumed(), *interrupted.resumed()],
        "running",
        82,
        "training",
    ),
    Case("death in the middle of an epoch", h.running(last_step=72), "lost", 72, lost=True),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_histories(case: Case) -> None:
    state = fold(case.events)
    if case.lost:
        state.mark_lost()
    assert (state.status, state.step, state.phase) == (case.status, case.step, case.phase)
    assert state.is_live == (case.status in ("starting", "running"))
    # Whatever the history: nothing that the screen asks for may raise.
    now = h.START + 20
    state.elapsed(now)
    state.remaining()
    headline(state)
    for rank in state.ranks.values():
        assert state.leader is not None
        rank_condition(state, rank, rank.behind(state.leader, now), now)


def test_devices_that_one_process_owns_are_rows_of_their_own() -> None:
    start = h.started(3)
    start = msgspec.structs.replace(start, config={**start.config, "backend": "jax-sharding"})
    alike = [msgspec.structs.replace(h.rank_started(rank), pid=4200, device=f"cpu:{rank}") for rank in range(3)]
    state = fold([start, *alike, *[h.steps(rank, 1, 5, 2.0) for rank in range(3)]])
    assert not state.process_per_device
    assert [(rank.rank, rank.pid, rank.step) for rank in state.ranks.values()] == [(n, 4200, 5) for n in range(3)]
    assert any("3 devices in one process" in entry.text for entry in state.log)


def test_the_run_s_facts() -> None:
    state = fold(h.running())
    assert (state.run_id, state.world_size, state.total_steps) == (h.RUN_ID, 2, 290)
    assert (state.epoch, state.epochs) == (5, 10)
    assert state.progress == pytest.approx(130 / 290)
    assert state.config["backend"] == "torch-ddp"
    assert state.curves[0, TEST_ACCURACY].middles().tolist() == [29, 58, 87, 116]
    assert state.test_accuracy == h.evaluation(4, 0).values[TEST_ACCURACY][0]
    assert state.elapsed(h.START + 8.5) == 8.5


def test_speed_is_summed_over_the_ranks_and_the_rest_follows_from_it() -> None:
    state = fold(h.running())
    assert state.examples_per_second == pytest.approx(2 * 24 / 0.05)
    # 160 steps of 50 ms, and the evaluations of epochs 5 to 10 of 0.2 s.
    assert state.remaining() == pytest.approx(160 * 0.05 + 6 * 0.2)


def test_what_remains_is_not_said_before_it_can_be() -> None:
    assert fold(h.beginning()).remaining() is None
    assert fold(h.completed()).remaining() is None


@pytest.mark.parametrize("seed", range(5))
def test_ranks_may_come_in_any_order(seed: int) -> None:
    """Each rank's own events keep their order; between ranks any may come first."""
    events = h.running(4)
    queues = [[e for e in events if getattr(e, "rank", None) == rank] for rank in (*range(4), None)]
    mixed: list[Event] = []
    dice = random.Random(seed)
    while any(queues):
        mixed.append(dice.choice([queue for queue in queues if queue]).pop(0))
    state, straight = fold(mixed), fold(list(events))
    for rank in range(4):
        assert state.ranks[rank].step == straight.ranks[rank].step
        assert state.ranks[rank].loss == straight.ranks[rank].loss
        mine, other = (one.curves[rank, LOSS].reduce(10, 1, 130) for one in (state, straight))
        assert mine.mean.tolist() == other.mean.tolist()
    assert state.arrays["batch"].devices == straight.arrays["batch"].devices
    assert state.step == straight.step


def test_reports_at_different_moments_are_not_a_lag() -> None:
    """Rank 1 reports half a second after rank 0; both take 20 steps a second."""
    state = fold([h.steps(0, 1, 20, 1.0), h.steps(1, 1, 10, 0.5), h.steps(0, 21, 40, 2.0), h.steps(1, 11, 30, 1.5)])
    leader = state.leader
    assert leader is not None
    assert leader.rank == 0
    assert state.ranks[1].behind(leader, h.START + 2) == 0


def test_a_rank_that_lags_stands_out() -> None:
    state = fold([h.started(), h.steps(0, 1, 60, 2.0), h.steps(1, 1, 30, 2.0)])
    leader, slow = state.leader, state.ranks[1]
    assert leader is not None
    behind = slow.behind(leader, h.START + 2)
    assert behind == 30
    assert rank_condition(state, slow, behind, h.START + 2).text == "slow"


def test_a_silent_rank_is_compared_with_the_leader_s_last_step() -> None:
    events = [Phase(rank=rank, phase="training", **h.at(0)) for rank in (0, 1)]
    state = fold([*events, h.steps(1, 1, 20, 1.0), h.steps(0, 1, 20, 1.0), h.steps(0, 21, 400, 20.0)])
    leader = state.leader
    assert leader is not None
    behind = state.ranks[1].behind(leader, h.START + 20)
    assert behind == 380
    assert rank_condition(state, state.ranks[1], behind, h.START + 20).text == "silent 19s"


def test_losses_that_are_not_finite_leave_gaps() -> None:
    state = fold(interrupted.with_nan())
    reduced = state.curves[0, LOSS].reduce(100, 1, 100)
    assert [column + 1 for column, gaps in enumerate(reduced.gaps) if gaps] == [71, 72, 73, 74, 75]
    found = headline(state)
    assert found is not None
    assert found.severity == "warning"


def test_shards_of_several_ranks_are_joined() -> None:
    array = fold(h.beginning(4)).arrays["batch"]
    assert array.layout == "split"
    assert array.split_dimensions() == [0]
    assert array.devices == [(rank, "cpu") for rank in range(4)]
    assert array.bytes_per_device == 4 * 48 * 784 // 4
    assert fold(h.beginning(4)).arrays["parameter fc1.weight"].layout == "replicated"


def test_partly_replicated_arrays_are_told_apart() -> None:
    shards = [
        Shard(rank=0, device=f"cuda:{d}", index=[(0, 8), (d % 2 * 4, d % 2 * 4 + 4)], bytes=128) for d in range(4)
    ]
    mesh = {"data": 2, "model": 2}
    event = Sharding(array="w", shape=[8, 8], dtype="float32", mesh=mesh, spec=[None, "model"], shards=shards)
    array = fold([event]).arrays["w"]
    assert array.layout == "split and replicated"
    assert [len(devices) for devices in array.blocks().values()] == [2, 2]


def test_the_log_is_bounded_and_hands_out_what_is_new() -> None:
    state = RunState()
    for number in range(MAX_LOG_LINES + 10):
        apply(state, LogLine(rank=0, stream="stdout", text=f"line {number}", **h.at(0)))
    assert len(state.log) == MAX_LOG_LINES
    assert state.log_count == MAX_LOG_LINES + 10
    assert [entry.text for entry in state.log_since(state.log_count - 2)] == ["line 5008", "line 5009"]
    assert len(state.log_since(0)) == MAX_LOG_LINES
    assert state.log_since(state.log_count) == []


def test_nothing_from_outside_reaches_the_terminal() -> None:
    evil = "\x1b]52;c;aGk=\x07\x1b[2J[@click=app.exit]x[/]\u202e"
    state = fold(
        [
            h.started(),
            LogLine(rank=0, stream="stderr", text=evil, **h.at(1)),
            Alert(kind="nan", text=evil, **h.at(1)),
            RankFailed(rank=0, exit_code=1, error=evil, **h.at(1)),
        ]
    )
    for entry in state.log:
        assert entry.text.isprintable()
    found = headline(state)
    assert found is not None
    assert found.text.isprintable()


def test_what_is_unknown_or_absurd_changes_nothing() -> None:
    state = fold(h.running())
    state.take_changes()
    apply(state, object())
    apply(state, None)
    assert (state.take_changes(), state.step) == (frozenset(), 130)
    for rank in (-1, 10**9):
        apply(state, Phase(rank=rank, phase="done"))
    assert set(state.ranks) == {0, 1}


def test_an_alert_that_has_ended_is_in_the_log_alone() -> None:
    hot = Alert(kind="thermal", device="GPU-0", text="GPU 0 is too hot", **h.at(9))
    other = msgspec.structs.replace(hot, device="GPU-1", text="GPU 1 is too hot")
    over = msgspec.structs.replace(hot, ended=True, severity="info", text="GPU 0 is cool again")
    state = fold([*RUNNING, hot, other, over])
    assert list(state.alerts) == [other]
    assert [entry.text for entry in state.log][-3:] == [hot.text, other.text, over.text]
    assert list(fold([*RUNNING, hot, over, hot]).alerts) == [hot]
