"""What the supervisor keeps of the events it writes, so that a view need not read them all: see `digest`.

Curves hold the values of metrics. Of other events it keeps the journal lines that a view's state depends on: of most
kinds the last per rank or device, of samples as many as a view draws, of the log's events the last 5,000. What a
resumed run drops from an earlier attempt is dropped here too, as are the curves of ranks that the new attempt lacks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import NamedTuple

from tuiapp.trainers.contract import events as ev
from tuiapp.trainers.contract.metrics import DATA_WAIT, EXAMPLES, LEARNING_RATE, LOSS, MAX_RANKS, STEP_TIME, loss_of
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.curves import Curves
from tuiapp.trainers.state.digest import Digest, is_logged, write_digest
from tuiapp.trainers.state.readings import MOST_GPUS
from tuiapp.trainers.state.totals import StepTotals, TotalsMeter, totals_of

BUCKETS = 2048
"""Most per curve: more than a terminal has dots across."""

ALL_BUCKETS = 65_536
"""Of all curves together."""

MAX_KEYS = 32_768
"""Kept lines: no run has that many ranks, devices and arrays."""

HISTORY = 120
"""Samples per device, rank and host: as many as views draw."""

RANK_SAMPLES, DEVICE_SAMPLES, HOST_SAMPLES, BATCHES = 8192, 4096, 2048, 8192
"""Over all ranks, devices and nodes."""

BATCHES_PER_RANK = 160
"""Views average a rank's pace over 15 s and the run's efficiency over 30 s; ranks report five times a second."""

LOG_LINES = 5000
LOG_BYTES = 2 << 20
CHECKPOINTS = 256
ALERTS = 200
STALLS = 16
ATTEMPTS = 64

LASTING = (
    "run-started", "rank-started", "checkpoint", "predictions", "host-sample", "furthest", "facts", "resumed",
    "initial-weights",
)  # fmt: skip


class _Kept(NamedTuple):
    number: int
    """The event's position among all."""
    line: bytes


class _KeptBatch(NamedTuple):
    number: int
    time: float
    mono: float
    first_step: int
    steps: int
    batch: StepTotals


class DigestKeeper:
    def __init__(self, digest: Digest | None = None) -> None:
        self._number = 0
        self._lines: dict[tuple[Hashable, ...], deque[_Kept]] = {}
        """Kind and key of the event → its last lines."""
        self._alerts: deque[tuple[_Kept, ev.Alert]] = deque(maxlen=ALERTS)
        self._layouts: dict[str, tuple[object, ...]] = {}
        """Array → what its shardings say of the whole of it."""
        self._log: deque[_Kept] = deque(maxlen=LOG_LINES)
        self._log_bytes = 0
        self._logged = 0
        self._batches: dict[int, deque[_KeptBatch]] = {}
        self._steps: dict[int, int] = {}
        self.curves = Curves(closest=BUCKETS, most=ALL_BUCKETS)
        self._meter = TotalsMeter()
        self._facts = ev.Facts()
        self._world_size = 0
        self._nodes = 1
        self._last_line = b""
        if digest is not None:
            self._restore(digest)

    def add(self, event: ev.Event, line: bytes) -> None:
        self._number += 1
        self._last_line = line
        if isinstance(event, ev.Metrics):  # first, because it is most of a journal
            self._add_metrics(event, line)
            return
        self._meter.add(event)
        if is_logged(event):
            self._add_to_log(line)
        match event:
            case ev.RunStarted():
                self._begin(event)
                self._keep(line, ATTEMPTS, "run-started")
            case ev.DeviceSample():
                self._add_device_sample(event, line)
            case ev.RankSample():
                # A process that is exiting holds no memory any more: it is not among the samples drawn.
                most = min(HISTORY, RANK_SAMPLES // max(1, self._world_size)) if event.rss_bytes else 1
                self._keep(line, most, "rank-sample", event.rank, bool(event.rss_bytes))
            case ev.HostSample():
                self._keep(line, max(1, min(HISTORY, HOST_SAMPLES // self._nodes)), "host-sample", event.node)
            case ev.Node():
                self._keep(line, 1, "node", event.node)
            case ev.Phase() | ev.RankStarted() | ev.FrameworkMemory() | ev.Held() | ev.Profile() | ev.Stacks():
                self._keep(line, 1, type(event).__struct_config__.tag, event.rank)
            case ev.RankFailed():
                if ("rank-failed", event.rank) not in self._lines:
                    self._keep(line, 1, "rank-failed", event.rank)
            case ev.Sharding():
                self._add_sharding(event, line)
            case ev.TelemetrySource():
                # A source that works again reports it only if it had failed.
                self._keep(line, 2, "telemetry-source", event.source)
            case ev.Predictions() | ev.Replicas() | ev.InitialWeights():
                self._keep(line, 1, type(event).__struct_config__.tag)
            case ev.Checkpoint():
                self._keep(line, CHECKPOINTS, "checkpoint")
            case ev.Facts():
                self._facts = self._facts.followed_by(event)
                self._keep(ev.encode(self._facts), 1, "facts")
            case ev.StopRequested() | ev.RunEnded():
                self._keep(line, 1, type(event).__struct_config__.tag)
                if isinstance(event, ev.RunEnded):
                    self.curves.end(event)
            case ev.Alert():
                self._add_alert(event, line)

    def write(self, run: RunDir, offset: int) -> None:
        """Replaces a run's digest; its journal has all added lines, up to `offset`. Raises OSError."""
        lines = {kept.number: kept.line for kept in self._log}
        for several in self._lines.values():
            lines.update(several)
        lines.update(kept for kept, _ in self._alerts)
        for rank, batches in self._batches.items():
            for each in batches:
                if each.number not in lines:
                    lines[each.number] = ev.encode(_batch_event(rank, each))
        kept = [line for _, line in sorted(lines.items())]
        write_digest(run, offset, self.curves, self._meter.totals, kept, self._logged, self._last_line)

    def _restore(self, digest: Digest) -> None:
        for event in digest.events:
            self.add(event, ev.encode(event))
        self.curves = Curves(closest=BUCKETS, most=ALL_BUCKETS)
        self.curves.load(digest)
        self._meter.totals = digest.totals
        self._logged += digest.forgotten

    def _keep(self, line: bytes, most: int, *key: Hashable) -> None:
        kept = self._lines.get(key)
        if kept is None or kept.maxlen != most:
            if kept is None and len(self._lines) >= MAX_KEYS:
                return
            kept = self._lines[key] = deque(kept or (), most)
        kept.append(_Kept(self._number, line))

    def _add_to_log(self, line: bytes) -> None:
        log = self._log
        self._logged += 1
        self._log_bytes += len(line) - (len(log[0].line) if len(log) == LOG_LINES else 0)
        log.append(_Kept(self._number, line))
        while self._log_bytes > LOG_BYTES:
            self._log_bytes -= len(log.popleft().line)

    def _begin(self, event: ev.RunStarted) -> None:
        self._world_size, self._nodes = event.world_size, max(1, event.nodes)
        before = self.curves.attempts.present
        self.curves.begin(event)
        if before is not None and self.curves.attempts.present is not before:
            self._forget_attempt()
        self._steps = {rank: step for rank, step in self._steps.items() if rank < event.world_size}
        for rank in range(min(event.world_size, MAX_RANKS)):
            self._steps[rank] = max(self._steps.get(rank, 0), event.resumed_from or 0)

    def _forget_attempt(self) -> None:
        self._lines = {key: kept for key, kept in self._lines.items() if key[0] in LASTING}
        self._steps = dict.fromkeys(self._steps, 0)
        self._layouts.clear()
        self._alerts.clear()
        self._batches.clear()

    def _add_metrics(self, event: ev.Metrics, line: bytes) -> None:
        rank, values, last = event.rank, event.values, event.last_step
        if self.curves.add(event) is not None:
            # It shows views the same.
            self._keep(line, ATTEMPTS, "resumed")
        if is_logged(event):
            self._add_to_log(line)
        self._keep(line, 1, "latest", rank)
        if event.is_training and last >= self._steps.get(rank, 0):
            # Views show a rank's last loss and learning rate, which need not come together.
            loss = loss_of(values)
            self._keep(line, 1, "furthest", rank, loss == LOSS, bool(loss), LEARNING_RATE in values)
            self._steps[rank] = last
        if STEP_TIME in values:
            batch = totals_of(event)
            self._meter.add_steps(batch)
            most = max(3, min(BATCHES_PER_RANK, BATCHES // max(1, self._world_size)))
            batches = self._batches.get(rank)
            if batches is None or batches.maxlen != most:
                batches = self._batches[rank] = deque(batches or (), most)
            steps = last - event.first_step + 1
            batches.append(_KeptBatch(self._number, event.time, event.mono, event.first_step, steps, batch))

    def _add_device_sample(self, event: ev.DeviceSample, line: bytes) -> None:
        gpus = self.curves.utilization
        most = min(HISTORY, DEVICE_SAMPLES // max(1, len(gpus)))
        self._keep(line, most, "device-sample", event.uuid)
        if event.ecc_uncorrected is not None and ("first-errors", event.uuid) not in self._lines:
            # A view counts errors from here on.
            self._keep(line, 1, "first-errors", event.uuid)
        if event.utilization_percent is not None and (event.uuid in gpus or len(gpus) < MOST_GPUS):
            step = max(self._steps.values(), default=0)
            self.curves.add_sample(event.uuid, step, event.utilization_percent)

    def _add_sharding(self, event: ev.Sharding, line: bytes) -> None:
        layout = event.shape, event.dtype, event.mesh, event.spec
        if self._layouts.setdefault(event.array, layout) != layout:
            # Another array of the same name: earlier shardings are obsolete.
            self._layouts[event.array] = layout
            self._forget("sharding", event.array)
        device = (event.shards[0].rank, event.shards[0].device) if event.shards else None
        self._keep(line, 1, "sharding", event.array, device)

    def _forget(self, *start: Hashable) -> None:
        size = len(start)
        self._lines = {key: kept for key, kept in self._lines.items() if key[:size] != start}

    def _add_alert(self, event: ev.Alert, line: bytes) -> None:
        if event.kind in ev.BLOCKING:
            # Even one that is over says which batches tell nothing of the ranks' speed.
            self._keep(line, STALLS, "stall")
        if not event.ended:
            self._alerts.append((_Kept(self._number, line), event))
            return
        self._alerts = deque((each for each in self._alerts if ev.about(each[1]) != ev.about(event)), ALERTS)
        if event.kind == "hang":
            self._forget("stacks")


def _batch_event(rank: int, kept: _KeptBatch) -> ev.Metrics:
    batch, steps = kept.batch, kept.steps
    values: dict[str, list[float | None]] = {STEP_TIME: [batch.seconds / steps], EXAMPLES: [batch.examples]}
    if batch.reported_seconds:
        values[DATA_WAIT] = [batch.waited / steps]
    return ev.Metrics(
        rank=rank, first_step=kept.first_step, values=values, counts=[steps], time=kept.time, mono=kept.mono
    )
