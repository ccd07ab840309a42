"""The fold: from a run's events, in order, to all that its screen shows."""

from __future__ import annotations

from tuiapp.trainers.contract import events as ev
from tuiapp.trainers.contract.events import about, place_name
from tuiapp.trainers.contract.metrics import MAX_RANKS, STEP_TIME, TEST_ACCURACY, TEST_LOSS, evaluation_of
from tuiapp.trainers.state import media
from tuiapp.trainers.state.blemishes import BlemishMeter
from tuiapp.trainers.state.curves import MAX_CURVES
from tuiapp.trainers.state.efficiency import totals_of
from tuiapp.trainers.state.known_metrics import metric
from tuiapp.trainers.state.messages import (
    describe_checkpoint,
    describe_failure,
    describe_initial,
    describe_node,
    describe_profile,
    describe_queued,
    describe_start,
)
from tuiapp.trainers.state.rank_state import MAX_NODES, ArrayState, NodeState, RankState
from tuiapp.trainers.state.readings import MOST_GPUS, GpuState
from tuiapp.trainers.state.run_state import LogEntry, RunState, Stream
from tuiapp.trainers.state.text import join_words, plural, sanitize

MAX_ARRAYS = 512
MAX_SOURCES = 16


def apply(state: RunState, event: object) -> None:
    """Folds one event, or first the state that many have come to; unknown ones are ignored.

    Never raises for an event's content.
    """
    if isinstance(event, RunState):
        return state.adopt(event)
    if not isinstance(event, ev.Event):
        return
    if state.first_time is None:
        state.first_time = event.time
    if state.beginning is None and not isinstance(event, ev.Queued):
        state.beginning = event.time
    before, state.last_time = state.last_time, max(state.last_time, event.time)
    state.mark_found()
    if isinstance(event, ev.Metrics):  # first, because most events are
        return _add_metrics(state, event)
    state.meter.add(event)
    match event:
        case ev.LogLine():
            _log(state, event, event.text, rank=event.rank, stream=event.stream)
        case ev.DeviceSample():
            if event.uuid not in state.gpus and len(state.gpus) < MOST_GPUS:
                # Until now it may have been known by its index only.
                state.gpus.pop(place_name(event.index, event.node), None)
                state.gpus[event.uuid] = GpuState(event)
            if gpu := state.gpus.get(event.uuid):
                gpu.add(event)
                if event.utilization_percent is not None:
                    state.curves.add_sample(event.uuid, state.step, event.utilization_percent)
            state.changed.add("devices")
        case ev.RankSample():
            # A process that is ending has freed its memory: its figure is not representative.
            if event.rss_bytes and (rank := _rank(state, event.rank)):
                rank.process = event
                rank.cpu.append(event.cpu_percent)
                rank.memory.append(event.rss_bytes)
                state.changed |= {"ranks", "devices"}
        case ev.FrameworkMemory():
            if rank := _rank(state, event.rank):
                rank.framework = event
                state.changed.add("devices")
        case ev.HostSample():
            if event.node == 0:
                state.host = event
                state.host_history.add(event)
            if node := state.nodes.get(event.node):
                node.sample = event
                node.history.add(event)
                state.changed.add("ranks")
            state.changed.add("devices")
        case ev.Phase():
            if rank := _rank(state, event.rank):
                rank.phase, rank.last_time = event.phase, event.time
                state.changed |= {"run", "ranks"}
        case ev.Node():
            if state.started is not None and 0 < event.node < MAX_NODES and event.node not in state.nodes:
                # Of a job that somebody else has started the number of nodes need not be known before.
                first = NodeState(0, sanitize(state.started.host, 60), "joined", state.host)
                nodes = (state.nodes or {0: first}) | {event.node: NodeState(event.node)}
                state.nodes = dict(sorted(nodes.items()))
            if node := state.nodes.get(event.node):
                node.host = sanitize(event.host, 60)
                node.status = "joined" if event.state == "back" else event.state
                state.changed |= {"ranks", "devices"}
            _log(state, event, describe_node(event), stream="event" if event.state in ("joined", "back") else "warning")
        case ev.Queued():
            if state.queued is None:
                _restart(state, state.step, before)
                state.first_time = event.time
                # What was sampled is past, and the nodes may be others.
                state.nodes, state.host = {}, None
            if state.queued is None or state.queued.reason != event.reason:
                _log(state, event, describe_queued(event), stream="milestone")
            state.queued = event
            state.changed |= {"run", "ranks", "alerts", "devices"}
        case ev.RunStarted():
            if state.queued is not None:
                state.queued, state.first_time = None, event.time
            _begin(state, event, before)
        case ev.Facts():
            state.facts = state.facts.followed_by(event)
            state.changed.add("run")
        case ev.RankStarted():
            if rank := _rank(state, event.rank):
                rank.pid, rank.node, rank.last_time = event.pid, event.node, event.time
                rank.device, rank.uuid = sanitize(event.device, 40), event.uuid
                rank.device_name = sanitize(event.device_name, 60)
                name = f" ({rank.device_name})" if rank.device_name else ""
                _log(state, event, f"started on {rank.device}{name}, pid {event.pid}", rank=event.rank)
                state.note_devices()
                state.changed.add("run")
        case ev.Sharding():
            name = sanitize(event.array, 120)
            if name in state.arrays or len(state.arrays) < MAX_ARRAYS:
                state.arrays.setdefault(name, ArrayState(name)).add(event)
                state.note_devices()
        case ev.Held():
            if _rank(state, event.rank):
                state.held[event.rank, event.device] = event
                state.changed.add("sharding")
        case ev.Replicas():
            state.replicas = event
            state.changed |= {"sharding", "ranks"}
        case ev.InitialWeights():
            state.initial = event
            _log(state, event, describe_initial(event), stream="milestone")
            state.changed.add("run")
        case ev.TelemetrySource():
            source, problem = sanitize(event.source, 40), sanitize(event.problem, 200)
            if problem and len(state.telemetry_problems) < MAX_SOURCES:
                state.telemetry_problems[source] = problem
            elif state.telemetry_problems.pop(source, "") and not problem:
                problem = "works again"
            if problem:
                _log(state, event, f"{source}: {problem}")
            state.changed.add("devices")
        case ev.Alert():
            state.marred.add(event)
            if event.ended:
                for alert in [alert for alert in state.alerts if about(alert) == about(event)]:
                    state.alerts.remove(alert)
                if event.kind == "hang":
                    state.stacks.clear()
            else:
                state.alerts.append(event)
                if event.kind in ev.BLOCKING:
                    for rank in state.ranks.values():
                        rank.stalled_at = event.time
            if event.kind in ev.BLOCKING:
                state.changed |= {"run", "ranks"}
            streams: dict[str, Stream] = {"warning": "warning", "error": "problem"}
            stream = "event" if event.ended else streams.get(event.severity, "event")
            _log(state, event, event.text, rank=event.rank, stream=stream)
            state.changed.add("alerts")
        case ev.Stacks():
            if 0 <= event.rank < MAX_RANKS:
                state.stacks[event.rank] = event
                state.changed.add("alerts")
        case ev.Predictions():
            state.predictions = event
            state.changed.add("predictions")
        case ev.Purged():
            state.curves.purge(event)
            media.go_back(state.media, event.step - 1, event.names)
            state.changed |= {"curves", "media"}
        case ev.Media():
            media.add(state.media, event)
            state.changed |= {"media", "predictions"}
        case ev.StopRequested():
            state.stop_requested = event
            state.stop_asked |= event.by in ("command", ev.PRUNED)
            _log(state, event, join_words(["stop requested", sanitize(event.by, 40), state.stop_words]))
            state.changed |= {"run", "alerts"}
        case ev.CheckpointRequested():
            _log(state, event, join_words(["checkpoint requested", sanitize(event.by, 40)]))
        case ev.ProfileRequested():
            what = f"profile of {plural(event.steps, 'step')} requested"
            _log(state, event, join_words([what, sanitize(event.by, 40)]))
        case ev.Profile():
            if _rank(state, event.rank):
                state.profiles[event.rank] = event
                state.changed.add("profiles")
            # Those of the other ranks are much the same, and many.
            if event.rank == 0:
                _log(state, event, describe_profile(event))
        case ev.Checkpoint():
            while state.checkpoints and state.checkpoints[-1].step >= event.step:
                state.checkpoints.pop()
            state.checkpoints.append(event)
            _log(state, event, describe_checkpoint(event), stream="checkpoint", step=event.step)
            state.changed |= {"run", "curves"}
        case ev.RankFailed():
            if len(state.failures) < MAX_RANKS:
                state.failures.append(event)
            if (rank := _rank(state, event.rank)) and rank.failure is None:
                rank.failure = event
            _log(state, event, describe_failure(event), rank=event.rank, stream="problem")
            state.changed |= {"run", "ranks", "alerts"}
        case ev.RunEnded():
            state.ended = event
            state.curves.end(event)
            text = join_words([event.status, event.reason])
            _log(state, event, text, stream="problem" if event.status == "failed" else "milestone")
            state.changed |= {"run", "ranks", "alerts", "devices", "curves"}


def _log(
    state: RunState, event: ev.Event, text: str, *, rank: int | None = None, stream: Stream = "event", step: int = 0
) -> None:
    node = (event.node if rank is None else state.node_of(rank)) if state.nodes else None
    state.log.append(LogEntry(event.time, rank, stream, sanitize(text), node, step))
    state.log_count += 1
    state.changed.add("log")


def _rank(state: RunState, number: int) -> RankState | None:
    if number in state.ranks:
        return state.ranks[number]
    if not 0 <= number < MAX_RANKS:
        return None
    state.changed |= {"run", "ranks", "devices"}
    return state.ranks.setdefault(number, RankState(number))


def _begin(state: RunState, event: ev.RunStarted, before: float) -> None:
    if state.started is not None and event.attempt > state.started.attempt:
        _restart(state, event.resumed_from or 0, before)
        state.first_time = event.time
    if (resumed := state.curves.begin(event)) is not None:
        _go_back(state, resumed)
    state.started = event
    state.run_id = sanitize(event.run_id, 100) or state.run_id
    # Of a part of a job the numbers of its ranks are not known before they report.
    expected = event.part is None
    for number in range(min(event.world_size, MAX_RANKS) if expected else 0):
        if rank := _rank(state, number):
            rank.step = max(rank.step, event.resumed_from or 0)
    for number in [number for number in state.ranks if number >= event.world_size and expected]:
        del state.ranks[number]
    count = min(event.nodes, event.world_size, MAX_NODES)
    state.nodes = {number: NodeState(number) for number in range(count)} if count > 1 else {}
    if state.nodes:
        state.nodes[0] = NodeState(0, sanitize(event.host, 60), "joined")
    _log(state, event, describe_start(event, process_per_device=state.process_per_device))
    state.step = max((rank.step for rank in state.ranks.values()), default=0)
    state.note_devices()
    state.changed |= {"run", "curves", "alerts"}


def _go_back(state: RunState, step: int) -> None:
    """Drops what earlier attempts did after the step that the present one resumes from."""
    state.marred.resumed_from = step
    if state.predictions and state.predictions.step > step:
        state.predictions = None
        state.changed.add("predictions")
    media.go_back(state.media, step)
    state.changed.add("media")
    for checkpoint in [checkpoint for checkpoint in state.checkpoints if checkpoint.step > step]:
        state.checkpoints.remove(checkpoint)


def _restart(state: RunState, step: int, before: float) -> None:
    """Starts a new attempt: drops all problems of the previous one, which was over at `before`."""
    marred = state.ended.summary.blemishes if state.ended else state.marred.blemishes(state.steps_done, before)
    state.marred = BlemishMeter(marred, None, state.marred.starts)
    for rank in state.ranks.values():
        rank.restart(step)
    state.ended = state.stop_requested = None
    state.stop_asked = False
    state.replicas = None
    # The log keeps the problems. The attempt may have other devices, and its ranks report the array layouts again.
    problems = state.failures, state.alerts, state.stacks, state.telemetry_problems
    for collection in (*problems, state.arrays, state.held, state.gpus):
        collection.clear()


def _add_metrics(state: RunState, event: ev.Metrics) -> None:
    full, gaps = state.curves.full, state.gaps.count
    batch = totals_of(event) if STEP_TIME in event.values else None
    state.meter.add_steps(event.mono, batch)
    state.marred.add(event)
    if (resumed := state.curves.add(event)) is not None:
        _go_back(state, resumed)
    if rank := _rank(state, event.rank):
        rank.add(event, batch)
        rank.last_time = event.time
        state.step = max(state.step, rank.step)
    state.changed |= {"run", "curves", "ranks"}
    if state.gaps.count > gaps:
        state.changed.add("alerts")
    if state.curves.full and not full:
        _log(state, event, f"more than {MAX_CURVES:,} curves: later metrics are not charted", stream="warning")
    # All ranks of a script may report the same evaluation.
    tested = TEST_LOSS in event.values or TEST_ACCURACY in event.values
    if event.rank == 0 and (tested or (not event.is_training and evaluation_of(event.values)[0])):
        parts = [f"epoch {state.epoch_of(event.last_step)}"] if state.steps_per_epoch else []
        for name in evaluation_of(event.values)[1:]:
            if name:
                shown, value = metric(name), event.values[name][-1]
                parts.append(f"{shown.label} {shown.format(value) if value is not None else 'NaN'}")
        parts.append(f"step {event.last_step:,}")
        _log(state, event, "  ".join(parts), stream="milestone", step=event.last_step)
