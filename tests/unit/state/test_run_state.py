"""The fold, driven by event histories: how runs go, stop, resume and end, on one node and on several."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import pytest

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit import node_histories as nodes
from tests.kit.folding import fold
from tests.kit.reported import evaluation_event
from tuiapp.trainers.contract.events import (
    Alert,
    Event,
    LogLine,
    Node,
    Phase,
    RankFailed,
    RankStarted,
    Shard,
    Sharding,
    StopRequested,
)
from tuiapp.trainers.contract.metrics import LOSS, TEST_ACCURACY
from tuiapp.trainers.state.condition import headline, rank_condition
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import MAX_LOG_LINES, RunClock, RunState


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


def evaluated(state: RunState) -> list[float]:
    """The steps after which the model was evaluated."""
    steps: list[float] = state.curves[0, TEST_ACCURACY].middles().tolist()
    return steps


def test_a_new_attempt_takes_steps_anew() -> None:
    again = h.started(attempt=2, resumed_from=50)
    state = fold([*interrupted.failed(), again])
    assert (state.status, state.failures, state.step) == ("running", [], 50)
    for event in (h.rank_started(0), h.steps(0, 51, 60, 20.0, losses=[9.0] * 10)):
        apply(state, event)
    losses = state.curves[0, LOSS]
    assert (state.step, losses.first_step, losses.last_step) == (60, 1, 60)
    points = losses.reduce(60, 1, 60)
    assert points.mean[48:52].tolist() == [h.loss_at(49, 0), h.loss_at(50, 0), 9.0, 9.0]
    # The other rank has not begun anew yet: what it did after the checkpoint is gone all the same.
    assert state.curves[1, LOSS].last_step == 50
    assert (state.ranks[1].step, state.ranks[1].loss) == (50, None)


def test_a_new_attempt_evaluates_and_saves_anew() -> None:
    state = fold([*h.running(last_step=100), h.checkpoint(29, 3), h.checkpoint(58, 4), h.checkpoint(87, 5, best=True)])
    assert evaluated(state) == [29, 58, 87]
    assert state.curves.evaluated == 87
    # The one after step 87 was damaged.
    apply(state, h.started(attempt=2, resumed_from=58, seconds=60))
    assert evaluated(state) == [29, 58]
    assert state.curves.evaluated == 58
    assert state.test_accuracy == h.evaluation(2, 0).values[TEST_ACCURACY][0]
    assert [one.step for one in state.checkpoints] == [29, 58]
    again = evaluation_event(87, 0.5, 0.125, **h.at(70))
    for event in (again, h.checkpoint(87, 71)):
        apply(state, event)
    assert evaluated(state) == [29, 58, 87]
    assert state.test_accuracy == 0.125
    assert [one.step for one in state.checkpoints] == [29, 58, 87]
    # Step 58 was made after 4.9 s: what came of that attempt afterwards does not count, nor the time between the two.
    assert state.elapsed(h.START + 75) == pytest.approx(4.9 + 15)


@pytest.mark.parametrize(("step", "counts"), [(72, 5.9), (58, 4.9), (0, 0.0)])
def test_of_an_earlier_attempt_counts_what_led_to_the_step_it_is_resumed_from(step: int, counts: float) -> None:
    """The last one, which made no further step, counts to its end."""
    first, second = interrupted.stopped(), interrupted.resumed(step=step, seconds=60.0)
    state = fold([*first, *second])
    assert state.elapsed(h.START + 64) == pytest.approx(counts + 4)
    again = h.started(attempt=3, resumed_from=step + 10, seconds=200)
    # Its last report came after 3 s.
    assert fold([*first, *second, again]).elapsed(h.START + 201) == pytest.approx(counts + 3 + 1)


def test_what_ailed_an_attempt_does_not_ail_the_next() -> None:
    events = [
        *interrupted.with_nan(),
        h.checkpoint(58, 4),
        *interrupted.failed()[-3:],
        h.started(attempt=2, resumed_from=58),
    ]
    state = fold(events)
    assert (headline(state), state.first_failure) == (None, None)
    note = Alert(kind="checkpoint", text="step-00000087 is damaged; resuming from step-00000058", **h.at(60))
    apply(state, note)
    found = headline(state)
    assert found is not None
    assert (found.text, found.severity) == (note.text, "warning")
    assert "resumed from step 58, attempt 2, on gpubox" in state.log[-2].text


def test_an_attempt_on_fewer_devices_forgets_the_others() -> None:
    state = fold([*interrupted.stopped(4), *interrupted.resumed(2)])
    assert sorted(state.ranks) == [0, 1]
    assert len(state.devices()) == 2
    assert state.step == 82


@pytest.mark.parametrize(
    ("events", "can_resume"),
    [
        (interrupted.stopped(), True),
        (interrupted.stopped()[:-1], False),
        ([*h.running(), h.ended("stopped", 9)], False),
        ([*h.completed()[:-1], h.checkpoint(290, 17), h.completed()[-1]], False),
        ([*h.running(), h.checkpoint(29, 9), *interrupted.failed()[-3:]], True),
        ([*interrupted.stopped(), *interrupted.resumed()], False),
    ],
)
def test_what_can_be_resumed(events: Sequence[Event], can_resume: bool) -> None:
    state = fold(events)
    assert state.can_resume == can_resume
    found = headline(state)
    assert ("u: resume from step" in (found.text if found else "")) == can_resume


def test_a_lost_run_can_be_resumed_unless_its_directory_is_gone() -> None:
    for removed in (False, True):
        state = fold(interrupted.stopped()[:-1])
        state.mark_lost(removed=removed)
        assert state.can_resume != removed


def test_the_named_rank_is_the_first_cause() -> None:
    state = fold(interrupted.failed())
    first = state.first_failure
    assert first is not None
    assert first.rank == 1
    found = headline(state)
    assert found is not None
    assert found.text.startswith("rank 1 failed at step 72: RuntimeError: CUDA error")
    assert found.text.endswith("1 more rank failed after it")
    told = [rank_condition(state, rank, 0, h.START + 7).text for rank in state.ranks.values()]
    assert told == ["exit 1", "failed first: exit 1"]


def test_a_rank_that_failed_alone_did_not_fail_first() -> None:
    state = fold([*h.running(), RankFailed(rank=1, signal="SIGKILL", **h.at(9))])
    assert rank_condition(state, state.ranks[1], 0, h.START + 9).text == "SIGKILL"


def test_without_a_named_rank_the_earliest_failure_is() -> None:
    state = fold(interrupted.failed()[:-1])
    assert state.first_failure is not None
    assert state.first_failure.rank == 1


def test_lost_runs_come_back_with_their_next_event() -> None:
    state = fold(h.running(last_step=72))
    state.mark_lost()
    assert state.lost
    state.take_changes()
    assert state.elapsed(h.START + 9999) == pytest.approx(5.6)
    apply(state, h.steps(0, 73, 80, 6.0))
    assert (state.status, state.lost) == ("running", False)
    assert "alerts" in state.take_changes()


def test_a_run_whose_directory_was_removed_says_so() -> None:
    state = fold(h.running(last_step=72))
    state.mark_lost(removed=True)
    found = headline(state)
    assert found is not None
    assert "directory was removed" in found.text
    state.mark_found()
    assert (state.status, headline(state)) == ("running", None)


@pytest.mark.parametrize("wrong_s", [3600.0, -3600.0])
def test_an_event_that_arrives_sets_a_wrong_clock_right(wrong_s: float) -> None:
    here = [1000.0 + wrong_s]
    clock = RunClock(lambda: here[0])
    clock.sync(999.0, more=False)
    here[0] += 2
    clock.sync(1002.0, more=False)
    assert clock.now() == 1002.0
    # Nothing new: the time passes all the same.
    here[0] += 60
    clock.sync(1002.0, more=False)
    assert clock.now() == 1062.0


def test_what_arrives_a_little_late_is_no_wrong_clock() -> None:
    clock = RunClock(lambda: 1000.0)
    clock.sync(10.0, more=False)
    clock.sync(996.0, more=False)
    assert clock.now() == 1000.0


def test_what_arrives_after_newer_events_shows_no_time() -> None:
    clock = RunClock(lambda: 1000.0)
    clock.sync(900.0, more=False)
    clock.sync(999.0, more=False)
    clock.sync(999.0, more=False)
    assert clock.now() == 1000.0


def test_a_hosts_sample_is_its_nodes() -> None:
    state = fold(nodes.running(2, 4))
    samples = [node.sample for node in state.nodes.values()]
    assert samples[0] is not None
    assert samples[1] is not None
    assert state.host is samples[0]
    assert samples[1].node == 1
    assert samples[1].memory_used_bytes == samples[0].memory_used_bytes + 100 * h.MIB
    # The graphs of the supervisor's machine show it alone.
    assert min(value or 0.0 for value in state.host_history.cpu) > 40


def test_each_has_its_host_its_state_and_its_ranks() -> None:
    state = fold(nodes.troubled())
    assert [(node.host, node.status) for node in state.nodes.values()] == [
        ("gpubox", "joined"), ("gpubox02", "joined"), ("gpubox03", "silent"), ("gpubox04", "lost"),
    ]  # fmt: skip
    assert [state.node_of(rank) for rank in (0, 7, 8, 31)] == [0, 0, 1, 3]
    assert state.ranks_of(1) == list(range(8, 16))


def test_nodes_that_nobody_expected_and_ranks_in_any_order() -> None:
    """As of a job that mpirun has started: how many nodes it has is not known before they join."""
    events = [
        h.started(4),
        *(Node(node=node, host=nodes.host(node), state="joined", **h.at(0.4)) for node in (2, 1)),
        *(
            RankStarted(rank=rank, node=node, pid=rank, device="cpu", **h.at(0.5))
            for rank, node in ((0, 0), (3, 1), (1, 2))
        ),
    ]
    state = fold(events)
    assert [(node.number, node.host) for node in state.nodes.values()] == [(n, nodes.host(n)) for n in range(3)]
    assert [state.node_of(rank) for rank in (0, 3, 1)] == [0, 1, 2]
    assert state.ranks_of(2) == [1]


def test_one_that_is_back_has_joined() -> None:
    back = Node(node=2, host=nodes.host(2), state="back", **h.at(9.0))
    assert fold([*nodes.troubled(), back]).nodes[2].status == "joined"


def test_one_machine_has_no_nodes() -> None:
    state = fold(h.running(2))
    assert state.nodes == {}
    assert {entry.node for entry in state.log} == {None}


def test_those_that_have_not_joined_are_awaited() -> None:
    state = fold(nodes.running(3, 6)[:1])
    assert [node.status for node in state.nodes.values()] == ["joined", "awaited", "awaited"]


@pytest.mark.parametrize(("rank", "node", "shown"), [(3, 1, 1), (0, 0, 0), (None, 1, 1), (3, 0, 1)])
def test_the_log_knows_the_node(rank: int | None, node: int, shown: int) -> None:
    """Of a rank it is the rank's, even if the supervisor says something of it."""
    line = LogLine(rank=rank, node=node, stream="stdout" if rank is not None else "run", text="hello", **h.at(9.0))
    assert fold([*nodes.running(2, 4), line]).log[-1].node == shown


def test_the_stacks_of_a_hang_are_no_lines_of_the_log() -> None:
    """Of 512 ranks they were a tenth of all that it keeps."""
    assert len(fold(nodes.hanging()).log) == len(fold(nodes.running()).log) + 1
