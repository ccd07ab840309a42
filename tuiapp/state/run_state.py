"""The fold: from a run's events, in order, to all that its screen shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from trainers.contract import events as ev
from trainers.contract.digest import Digest
from trainers.contract.metrics import MAX_RANKS, TEST_ACCURACY, TEST_LOSS
from trainers.contract.samples import PLACE
from tuiapp.state.array_state import ArrayState
from tuiapp.state.condition import describe_checkpoint, describe_failure, describe_start
from tuiapp.state.curves import MAX_NAMES, Curves, SampledCurve, series_of
from tuiapp.state.devices.gpu import MOST_GPUS, new_gpu
from tuiapp.state.metrics import metric
from tuiapp.state.rank_state import RankState
from tuiapp.state.run_facts import LogEntry, RunFacts
from tuiapp.state.text import join_words, sanitize

Topic: TypeAlias = Literal["run", "curves", "ranks", "devices", "sharding", "log", "alerts"]  # a part of the screen
MAX_ARRAYS = 512
MAX_SOURCES = 16

_METRICS_CHANGE: frozenset[Topic] = frozenset({"run", "curves", "ranks"})


class RunState(RunFacts):
    """Folds a run's events. `apply` never raises for the content of an event."""

    def __init__(self, run_id: str = "") -> None:
        super().__init__(run_id)
        self._changed: set[Topic] = set()
        self._handlers: dict[type, Callable[[Any], None]] = {
            ev.RunStarted: self._run_started,
            ev.Phase: self._phase,
            ev.RankStarted: self._rank_started,
            ev.Metrics: self._metrics,
            ev.Sharding: self._sharding,
            ev.DeviceSample: self._device_sample,
            ev.RankSample: self._rank_sample,
            ev.FrameworkMemory: self._framework_memory,
            ev.HostSample: self._host_sample,
            ev.TelemetrySource: self._telemetry_source,
            ev.LogLine: self._log_line,
            ev.Alert: self._alert,
            ev.Stacks: self._stacks,
            ev.StopRequested: self._stop_requested,
            ev.CheckpointRequested: self._checkpoint_requested,
            ev.Checkpoint: self._checkpoint,
            ev.RankFailed: self._rank_failed,
            ev.RunEnded: self._run_ended,
        }

    def apply(self, event: object) -> None:
        """Folds one event, or first the digest of many; unknown events are ignored."""
        if isinstance(event, Digest):
            return self._load(event)
        handler = self._handlers.get(type(event))
        if handler is None or not isinstance(event, ev.Event):
            return
        if self.first_time is None:
            self.first_time = event.time
        if event.time > self.last_time:
            self.last_time = event.time
        self.mark_found()
        self._meter.add(event)
        handler(event)

    def _load(self, digest: Digest) -> None:
        for event in digest.events:
            self.apply(event)
        # A digest's events are a part of all: its own curves and missing steps replace what follows from them.
        self.curves = Curves()
        self.curves.load(digest)
        for uuid, curve in digest.utilization.items():
            self.utilization[uuid] = SampledCurve(series_of(curve))
        self.log_count += digest.forgotten
        self._changed |= _METRICS_CHANGE

    def mark_lost(self, *, removed: bool = False) -> None:
        """Marks a run lost: its journal has no end, and no supervisor is alive. `removed`: its directory is gone."""
        if self.ended is None and not self.lost:
            self.lost, self.removed = True, removed
            self._changed |= {"run", "ranks", "alerts", "devices"}

    def mark_found(self) -> None:
        """Reverts `mark_lost`: the directory is back, or the run was resumed."""
        if self.lost:
            self.lost = self.removed = False
            self._changed |= {"run", "ranks", "alerts", "devices"}

    def note_trouble(self, trouble: str) -> None:
        """Sets why the journal of a live run does not grow; "" while all is well."""
        if (text := sanitize(trouble, 300)) != self.trouble:
            self.trouble = text
            self._changed |= {"alerts", "run"}

    def take_changes(self) -> frozenset[Topic]:
        changed = frozenset(self._changed)
        self._changed.clear()
        return changed

    def _note(self, event: ev.Event, text: str, *, rank: int | None = None, problem: bool = False) -> None:
        self._write(LogEntry(event.time, rank, "problem" if problem else "event", sanitize(text)))

    def _write(self, entry: LogEntry) -> None:
        self.log.append(entry)
        self.log_count += 1
        self._changed.add("log")

    def _rank(self, number: int) -> RankState | None:
        if number in self.ranks:
            return self.ranks[number]
        if not 0 <= number < MAX_RANKS:
            return None
        self._changed |= {"run", "ranks", "devices"}
        return self.ranks.setdefault(number, RankState(number))

    def _run_started(self, event: ev.RunStarted) -> None:
        if self.started is not None and event.attempt > self.started.attempt:
            self._go_back(event.resumed_from)
            self.first_time = event.time
        self.curves.begin(event)
        self.started = event
        self.run_id = sanitize(event.run_id, 100) or self.run_id
        for number in range(min(event.world_size, MAX_RANKS)):
            if rank := self._rank(number):
                rank.step = max(rank.step, event.resumed_from)
        for number in [number for number in self.ranks if number >= event.world_size]:
            del self.ranks[number]
        self._note(event, describe_start(event, process_per_device=self.process_per_device))
        self._changed |= {"run", "curves", "ranks", "devices", "sharding", "alerts"}

    def _go_back(self, step: int) -> None:
        """Starts a new attempt after a step: drops later values and all problems of the previous attempt."""
        for rank in self.ranks.values():
            rank.restart(step)
        for curve in self.utilization.values():
            curve.truncate(step + 1)
        self.ended = self.stop_requested = None
        for checkpoint in [one for one in self.checkpoints if one.step > step]:
            self.checkpoints.remove(checkpoint)
        # The log has them.
        self.failures.clear()
        self.alerts.clear()
        self.stacks.clear()
        # It may have other devices; its ranks report the array layouts again.
        self.arrays.clear()
        self.gpus.clear()
        self.telemetry_problems.clear()

    def _phase(self, event: ev.Phase) -> None:
        if rank := self._rank(event.rank):
            rank.phase, rank.last_time = event.phase, event.time
            self._changed |= {"run", "ranks"}

    def _rank_started(self, event: ev.RankStarted) -> None:
        if rank := self._rank(event.rank):
            rank.pid, rank.last_time = event.pid, event.time
            rank.device, rank.uuid = sanitize(event.device, 40), event.uuid
            rank.device_name = sanitize(event.device_name, 60)
            name = f" ({rank.device_name})" if rank.device_name else ""
            self._note(event, f"started on {rank.device}{name}, pid {event.pid}", rank=event.rank)
            self._changed |= {"run", "ranks", "devices", "sharding"}

    def _metrics(self, event: ev.Metrics) -> None:
        full, gaps = self.curves.full, self.gaps.count
        if not (rank := self._rank(event.rank)) or not self.curves.add(event):
            return
        rank.add(event)
        if self.gaps.count > gaps:
            self._changed.add("alerts")
        rank.last_time = event.time
        self._changed |= _METRICS_CHANGE
        if self.curves.full and not full:
            self._note(event, f"more than {MAX_NAMES:,} metrics: later ones are not charted", problem=True)
        if TEST_LOSS in event.values or TEST_ACCURACY in event.values:
            self._note_evaluation(event)

    def _note_evaluation(self, event: ev.Metrics) -> None:
        words = [f"epoch {self.epoch_of(event.last_step)}"] if self.steps_per_epoch else []
        for name in (TEST_LOSS, TEST_ACCURACY):
            if name in event.values:
                shown, value = metric(name), event.values[name][-1]
                words.append(f"{shown.label} {shown.format(value) if value is not None else 'not finite'}")
        self._note(event, "  ".join([*words, f"step {event.last_step:,}"]))

    def _sharding(self, event: ev.Sharding) -> None:
        name = sanitize(event.array, 120)
        if name in self.arrays or len(self.arrays) < MAX_ARRAYS:
            self.arrays.setdefault(name, ArrayState(name)).add(event)
            self._changed |= {"sharding", "ranks", "devices"}

    def _device_sample(self, event: ev.DeviceSample) -> None:
        if event.uuid in self.gpus:
            self.gpus[event.uuid].add(event)
        elif len(self.gpus) < MOST_GPUS:
            # Until now it may have been known by its index only.
            self.gpus.pop(f"{PLACE}{event.index}", None)
            self.gpus[event.uuid] = new_gpu(event)
        if event.uuid in self.gpus and event.utilization_percent is not None:
            self.utilization.setdefault(event.uuid, SampledCurve()).append(self.step, event.utilization_percent)
        self._changed.add("devices")

    def _rank_sample(self, event: ev.RankSample) -> None:
        # A process that is ending has freed its memory: its figure is not representative.
        if event.rss_bytes and (rank := self._rank(event.rank)):
            rank.process = event
            rank.cpu.append(event.cpu_percent)
            self._changed |= {"ranks", "devices"}

    def _framework_memory(self, event: ev.FrameworkMemory) -> None:
        if rank := self._rank(event.rank):
            rank.framework = event
            self._changed.add("devices")

    def _host_sample(self, event: ev.HostSample) -> None:
        self.host = event
        self.host_cpu.append(event.cpu_percent)
        self._changed.add("devices")

    def _telemetry_source(self, event: ev.TelemetrySource) -> None:
        source, problem = sanitize(event.source, 40), sanitize(event.problem, 200)
        if problem and len(self.telemetry_problems) < MAX_SOURCES:
            self.telemetry_problems[source] = problem
        elif self.telemetry_problems.pop(source, "") and not problem:
            problem = "works again"
        if problem:
            self._note(event, f"{source}: {problem}")
        self._changed.add("devices")

    def _log_line(self, event: ev.LogLine) -> None:
        self._write(LogEntry(event.time, event.rank, event.stream, sanitize(event.text)))

    def _alert(self, event: ev.Alert) -> None:
        if event.ended:
            about = (event.kind, event.rank, event.device)
            for alert in [alert for alert in self.alerts if (alert.kind, alert.rank, alert.device) == about]:
                self.alerts.remove(alert)
            if event.kind == "hang":
                self.stacks.clear()
        else:
            self.alerts.append(event)
        self._note(event, event.text, rank=event.rank, problem=event.severity != "info" and not event.ended)
        self._changed.add("alerts")

    def _stacks(self, event: ev.Stacks) -> None:
        if 0 <= event.rank < MAX_RANKS:
            self.stacks[event.rank] = event
            self._note(event, "its Python stacks were recorded", rank=event.rank)
            self._changed.add("alerts")

    def _stop_requested(self, event: ev.StopRequested) -> None:
        self.stop_requested = event
        self._note(event, join_words([f"stop{' now' * event.now} requested", sanitize(event.by, 40)]))
        self._changed |= {"run", "alerts"}

    def _checkpoint_requested(self, event: ev.CheckpointRequested) -> None:
        self._note(event, join_words(["checkpoint requested", sanitize(event.by, 40)]))

    def _checkpoint(self, event: ev.Checkpoint) -> None:
        while self.checkpoints and self.checkpoints[-1].step >= event.step:
            self.checkpoints.pop()
        self.checkpoints.append(event)
        self._note(event, describe_checkpoint(event))
        self._changed |= {"run", "curves"}

    def _rank_failed(self, event: ev.RankFailed) -> None:
        if len(self.failures) < MAX_RANKS:
            self.failures.append(event)
        if (rank := self._rank(event.rank)) and rank.failure is None:
            rank.failure = event
        self._note(event, describe_failure(event), rank=event.rank, problem=True)
        self._changed |= {"run", "ranks", "alerts"}

    def _run_ended(self, event: ev.RunEnded) -> None:
        self.ended = event
        self._note(event, join_words([event.status, event.reason]), problem=event.status == "failed")
        self._changed |= {"run", "ranks", "alerts", "devices", "curves"}
