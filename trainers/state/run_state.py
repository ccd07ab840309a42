"""What is known of a run, what follows from it, and what its supervisor's clock says."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from itertools import islice
from math import isfinite
from typing import Literal, NamedTuple, TypeAlias, get_args

import msgspec

from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.datasets import task_of
from tuiapp.trainers.config.division import node_of
from tuiapp.trainers.config.mesh import devices_per_node
from tuiapp.trainers.config.script_syntax import program_name
from tuiapp.trainers.contract import events as ev
from tuiapp.trainers.contract.metrics import LOSS, TEST_SECONDS, evaluation_of
from tuiapp.trainers.contract.sidecars import About
from tuiapp.trainers.state.blemishes import BlemishMeter, unaccepted
from tuiapp.trainers.state.curves import Curves, SampledCurve
from tuiapp.trainers.state.efficiency import EfficiencyMeter
from tuiapp.trainers.state.history import Gaps
from tuiapp.trainers.state.known_metrics import UTILIZATION, ordered
from tuiapp.trainers.state.media import Kept
from tuiapp.trainers.state.rank_state import ArrayState, Device, NodeState, RankState
from tuiapp.trainers.state.readings import GpuState, HostHistory
from tuiapp.trainers.state.text import format_duration, sanitize, without_directories
from tuiapp.trainers.tasks.catalog import Task

RunStatus: TypeAlias = Literal["queued", "starting", "running", "completed", "failed", "stopped", "lost"]
Fault: TypeAlias = Literal["", "failure", "hang"]
# What a rank has written, and what is said of the run.
Stream: TypeAlias = Literal["stdout", "stderr", "run", "event", "milestone", "checkpoint", "warning", "problem"]
# A part of the screen.
Topic: TypeAlias = Literal[
    "run", "curves", "ranks", "devices", "sharding", "log", "alerts", "predictions", "profiles", "media"
]

MAX_LOG_LINES = 5000
MAX_CHECKPOINTS = 256
MAX_ALERTS = 200


class LogEntry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A line of the log, sanitized.

    There may be tens of thousands a second; holding no other object, they need no garbage collection.
    """

    time: float
    rank: int | None
    stream: Stream
    text: str
    node: int | None = None  # None on one machine
    step: int = 0  # of an evaluation or a checkpoint


def names(config: Mapping[str, object]) -> list[str]:
    """Returns backend, model or script, and data set of a configuration as the journal has it; "" for none."""
    subject = program_name(str(config["script"])) if "script" in config else config.get("model", "")
    parts = (config.get("backend", ""), subject, config.get("dataset", ""))
    return [sanitize(without_directories(str(name)), 60) for name in parts]


class Stall(NamedTuple):
    """Why no rank makes progress, as the alerts of a hang or of stopped ranks have it."""

    alert: ev.Alert  # the latest
    since: float  # time of the last report of any rank, in seconds since the epoch
    culprits: frozenset[int]  # the ranks that the others wait for; empty if they are not known

    @property
    def verb(self) -> str:
        """What a culprit does."""
        return "stopped" if self.alert.kind == "stopped" else "hangs"


def has_more(step: int, total_steps: int, status: str) -> bool:
    """Whether a finished run has anything left to do after a checkpoint: steps, or else export and its end."""
    return step < total_steps or (step == total_steps and status in ("lost", "failed"))


@dataclass(eq=False, slots=True)
class RunState:
    """All that is known of a run; `tuiapp.trainers.state.fold.apply` folds events into it."""

    run_id: str = ""  # until the first event: the directory's
    # Share of its journal that has been read, 0 to 1, until the end is reached: what is known then is past, and nothing
    # is said of what the run does now. None afterwards.
    reading: float | None = None
    queued: ev.Queued | None = None  # while its Slurm job waits
    started: ev.RunStarted | None = None
    ended: ev.RunEnded | None = None
    lost: bool = False
    removed: bool = False  # lost because its directory was removed
    replayed: bool = False  # a replay: it takes no commands
    stop_requested: ev.StopRequested | None = None
    stop_asked: bool = False  # whether somebody has asked the attempt to stop for good: a command, or a search
    about: About = field(default_factory=About)  # what the user says of it
    planned: dict[str, object] = field(default_factory=dict)  # its run.toml
    facts: ev.Facts = field(default_factory=lambda: ev.Facts(time=0.0, mono=0.0))  # all that its script says of it
    # Newest last; some are no longer on disk.
    checkpoints: deque[ev.Checkpoint] = field(default_factory=lambda: deque(maxlen=MAX_CHECKPOINTS))
    beginning: float | None = None  # of the first event that is not of a wait in a queue, in seconds since the epoch
    first_time: float | None = None  # of the attempt's first event
    last_time: float = 0.0
    ranks: dict[int, RankState] = field(default_factory=dict)
    step: int = 0  # the furthest rank's last reported one
    nodes: dict[int, NodeState] = field(default_factory=dict)  # of a run on several machines; else empty
    curves: Curves = field(default_factory=Curves)
    predictions: ev.Predictions | None = None  # of the last evaluation
    media: dict[str, Kept] = field(default_factory=dict)  # pictures and texts, by name
    arrays: dict[str, ArrayState] = field(default_factory=dict)
    held: dict[Device, ev.Held] = field(default_factory=dict)
    profiles: dict[int, ev.Profile] = field(default_factory=dict)  # by rank, of the steps profiled last
    initial: ev.InitialWeights | None = None  # of the first attempt: a resumed one goes on from a checkpoint
    replicas: ev.Replicas | None = None  # as they were compared last in the present attempt
    gpus: dict[str, GpuState] = field(default_factory=dict)  # by UUID
    host: ev.HostSample | None = None  # of the supervisor's machine, node 0
    host_history: HostHistory = field(default_factory=HostHistory)  # of node 0
    telemetry_problems: dict[str, str] = field(default_factory=dict)  # "NVML" or "sampler" → reason of the failure
    meter: EfficiencyMeter = field(default_factory=EfficiencyMeter)
    marred: BlemishMeter = field(default_factory=BlemishMeter)
    alerts: deque[ev.Alert] = field(default_factory=lambda: deque(maxlen=MAX_ALERTS))
    trouble: str = ""  # why the journal of a live run does not grow; "" while all is well
    newer: str = ""  # the message if a later version of tuiapp wrote the run; "" if none did
    failures: list[ev.RankFailed] = field(default_factory=list)
    stacks: dict[int, ev.Stacks] = field(default_factory=dict)  # by rank, while the run hangs
    log: deque[LogEntry] = field(default_factory=lambda: deque(maxlen=MAX_LOG_LINES))
    log_count: int = 0  # lines ever logged; `log` holds the last of them
    changed: set[Topic] = field(default_factory=set)  # since the last `take_changes`
    _devices: list[Device] | None = None

    @property
    def utilization(self) -> dict[str, SampledCurve]:
        """Returns each GPU's utilization in percent, by the step that the run had reached."""
        return self.curves.utilization

    @property
    def gaps(self) -> Gaps:
        return self.curves.gaps

    @property
    def status(self) -> RunStatus:
        if self.ended is not None:
            return self.ended.status
        if self.lost:
            return "lost"
        if self.queued is not None:
            return "queued"
        return "running" if self.started is not None or self.ranks else "starting"

    @property
    def is_live(self) -> bool:
        return self.status in ("queued", "starting", "running")

    @property
    def blemishes(self) -> list[ev.Blemish]:
        """What mars a run that has ended, and the user has not accepted."""
        return unaccepted(self.ended.summary, self.about) if self.ended else []

    @property
    def last_checkpoint(self) -> ev.Checkpoint | None:
        return self.checkpoints[-1] if self.checkpoints else None

    @property
    def resume_step(self) -> int | None:
        """The step of the newest checkpoint that the journal covers: its commit, and every rank's steps up to it.

        None where it covers none; there may be one nevertheless, see `tuiapp.trainers.state.resume_point`.
        """
        return max(self.covered_checkpoints, default=0) or None

    @property
    def covered_checkpoints(self) -> list[int]:
        """Steps of the checkpoints that the journal covers, ascending.

        That from which the attempt resumed is one: resuming from it again loses nothing more.
        """
        reached = min((rank.step for rank in self.ranks.values()), default=0)
        resumed_from = self.started.resumed_from if self.started else 0
        return sorted(
            {*(checkpoint.step for checkpoint in self.checkpoints if checkpoint.step <= reached), resumed_from or 0}
        )

    @property
    def can_resume(self) -> bool:
        """Whether the run is over, incomplete, and has a checkpoint, or may have one if it was lost."""
        is_watched = not (self.replayed or self.removed or self.reading is not None)
        if not is_watched or self.is_live or self.status == "completed":
            return False
        if self.is_script or self.resume_step is None:
            return self.is_script or self.lost
        return not self.total_steps or has_more(self.resume_step, self.total_steps, self.status)

    @property
    def phase(self) -> str:
        """Rank 0's phase; "stopping" once a stop was requested; "" when not known, over or not begun."""
        if not self.is_live or self.reading is not None:
            return ""
        if self.stop_requested is not None:
            return "stopping"
        first = self.ranks.get(min(self.ranks)) if self.ranks else None
        if first and (first.phase or first.step):
            return first.phase or ""
        return "preparing" if first or self.started else ""

    @property
    def config(self) -> dict[str, object]:
        """The configuration as in run.toml."""
        return self.started.config if self.started else self.planned

    @property
    def task(self) -> Task:
        """What a built-in trainer trains for."""
        return task_of(str(self.config.get("dataset")))

    @property
    def name(self) -> str:
        """The name that the user gave, or else the script; "" if neither did."""
        return sanitize(self.about.name or self.facts.name, 100)

    @property
    def world_size(self) -> int:
        """Ranks, or devices where one process owns them all."""
        return self.started.world_size if self.started else len(self.ranks)

    def node_of(self, rank: int) -> int:
        """Returns the node that a rank is on: before it says so, in the order of the nodes, as the run is to be."""
        rank_state = self.ranks.get(rank)
        if rank_state is not None and rank_state.node in self.nodes:
            return rank_state.node
        if not self.nodes:
            return 0
        uneven = self.config.get("devices_per_node")
        if uneven and isinstance(uneven, str):
            with suppress(ValueError):
                if sum(ranks := devices_per_node(uneven)) == self.world_size:
                    return min(node_of(rank, ranks), len(self.nodes) - 1)
        return min(rank * len(self.nodes) // self.world_size, len(self.nodes) - 1)

    def ranks_of(self, node: int) -> list[int]:
        """Returns the numbers of a node's ranks, of a run on several machines."""
        return [rank for rank in sorted(self.ranks) if self.node_of(rank) == node]

    @property
    def awaited_nodes(self) -> int:
        """How many nodes have not joined yet."""
        return sum(node.status == "awaited" for node in self.nodes.values())

    def host_of(self, node: int) -> tuple[ev.HostSample | None, HostHistory]:
        """Returns the latest sample of a node's host, and the last ones; on one machine its own."""
        node_state = self.nodes.get(node)
        return (node_state.sample, node_state.history) if node_state else (self.host, self.host_history)

    @property
    def is_script(self) -> bool:
        """Whether it is a program of the user's own, which saves its checkpoints itself."""
        backend = BACKENDS.get(str(self.config.get("backend")))
        return backend is not None and not backend.builtin

    @property
    def stop_grace_s(self) -> float | None:
        """Seconds from SIGTERM to SIGKILL when a script is stopped; None for a built-in trainer."""
        grace = self.config.get("stop_grace_s")
        return float(grace) if self.is_script and isinstance(grace, int | float) else None

    @property
    def sigterm_grace_s(self) -> float | None:
        """`stop_grace_s` of a stop that has sent SIGTERM; None if the script's ranks stop by themselves."""
        return None if self.stop_requested is not None and self.stop_requested.agreed else self.stop_grace_s

    @property
    def stop_words(self) -> str:
        """How it stops; "" if nobody has asked it to."""
        request, grace_s = self.stop_requested, self.sigterm_grace_s
        if request is None:
            return ""
        if request.now:
            return "stopping now"
        if grace_s is not None:
            return f"SIGTERM sent; the script has {format_duration(grace_s)} to end"
        saves = request.save and not self.is_script
        return "saving a checkpoint, then stopping" if saves else "stopping after the step that all ranks agree on"

    @property
    def process_per_device(self) -> bool:
        """Whether each rank is a process; assumed for unknown backends."""
        backend = BACKENDS.get(str(self.config.get("backend")))
        return backend is None or backend.process_per_device

    @property
    def total_steps(self) -> int:
        """0 when not known."""
        return max(0, self.started.total_steps, self.facts.total_steps) if self.started else 0

    @property
    def steps_per_epoch(self) -> int:
        """0 when not known."""
        return max(0, self.started.steps_per_epoch) if self.started else 0

    @property
    def leader(self) -> RankState | None:
        return max(self.ranks.values(), key=lambda rank: rank.step, default=None)

    @property
    def epoch(self) -> int:
        """Counted from 1; 0 before the first step or when not known."""
        return self.epoch_of(self.step)

    def epoch_of(self, step: int) -> int:
        if reported := self.curves.reported_epochs:
            return reported.number_of(step)
        return (step - 1) // self.steps_per_epoch + 1 if step and self.steps_per_epoch else 0

    def ends_epoch(self, step: int) -> bool:
        if reported := self.curves.reported_epochs:
            return reported.ends_with(step)
        return bool(self.steps_per_epoch) and step % self.steps_per_epoch == 0

    @property
    def epochs(self) -> int:
        """0 when not known."""
        if reported := self.curves.reported_epochs:
            return reported.of(self.total_steps)
        return -(-self.total_steps // self.steps_per_epoch) if self.steps_per_epoch else 0

    @property
    def epochs_done(self) -> float | None:
        """How many epochs an ended run has trained, to a tenth; None where they are not known."""
        if self.ended is None or self.ended.summary.epochs is None:
            return None
        epochs = round(self.ended.summary.epochs, 1)
        return epochs if self.steps_per_epoch or (self.is_script and epochs) else None

    @property
    def steps_done(self) -> int:
        """How many steps it has taken: steps 0 to 399 are 400."""
        return self.step + bool(self.curves.zero)

    @property
    def progress(self) -> float | None:
        return min(1.0, self.steps_done / self.total_steps) if self.total_steps else None

    @property
    def examples_per_second(self) -> float | None:
        """Over all ranks: recent while they make progress, the mean of the run once it has ended."""
        if self.ended is not None and self.ended.summary.examples_per_second is not None:
            return self.ended.summary.examples_per_second
        if not self.is_moving:
            return None
        rates = [rate for rank in self.ranks.values() if (rate := rank.pace.examples_per_second) is not None]
        return sum(rates) if rates else None

    @property
    def metrics(self) -> list[str]:
        """Returns the metrics reported so far; the loss before any."""
        return ordered([*(self.curves.names or [LOSS]), *([UTILIZATION] if self.utilization else [])])

    @property
    def step_s(self) -> float | None:
        """Recent seconds per step of the slowest rank."""
        return max((pace for rank in self.ranks.values() if (pace := rank.pace.step_s) is not None), default=None)

    @property
    def test_accuracy(self) -> float | None:
        """The last evaluation's, as reported: see `accuracy_percent`; None before the first."""
        return self.curves.first(evaluation_of(self.curves.names)[2]).last

    @property
    def evaluated_on(self) -> str:
        """The held-out group whose accuracy that is."""
        return evaluation_of(self.curves.names)[0]

    @property
    def hang(self) -> ev.Alert | None:
        return next((alert for alert in reversed(self.alerts) if alert.kind == "hang"), None)

    @property
    def stall(self) -> Stall | None:
        """None as soon as a rank has reported anything since the alert, or while the journal is read."""
        alerts = [alert for alert in self.alerts if alert.kind in ev.BLOCKING] if self.is_live else []
        if not alerts or self.reading is not None:
            return None
        since = max((rank.last_time for rank in self.ranks.values()), default=0.0)
        alerts = [alert for alert in alerts if alert.time >= since]
        culprits = (number for alert in alerts for number in (*alert.ranks, alert.rank) if number is not None)
        return Stall(alerts[-1], since, frozenset(culprits)) if alerts else None

    @property
    def is_moving(self) -> bool:
        """Whether its speed is that of now: not while its journal is read, or no rank makes progress."""
        return self.reading is None and self.stall is None

    @property
    def fault(self) -> Fault:
        if self.reading is not None:
            return ""
        return "failure" if self.failures else "hang" if self.stacks else ""

    @property
    def first_failure(self) -> ev.RankFailed | None:
        """The failure that the run names as its cause, or else the earliest one."""
        named = self.ended.failed_rank if self.ended else None
        by_cause = sorted(self.failures, key=lambda failure: (failure.rank != named, failure.mono))
        return by_cause[0] if by_cause else None

    def adopt(self, other: RunState) -> None:
        """Takes all that another state has folded; what this view knows from elsewhere stays."""
        for attribute in fields(self):
            if attribute.name not in _OF_THE_VIEW:
                setattr(self, attribute.name, getattr(other, attribute.name))
        self.mark_found()
        self.changed |= set(get_args(Topic))

    def note_reading(self, share: float | None) -> None:
        """Sets how much of the journal was read; None once its end was reached."""
        if share != self.reading:
            self.changed |= {"run", "ranks", "devices", "alerts"} if None in (share, self.reading) else {"run"}
            self.reading = share

    def elapsed(self, now: float) -> float | None:
        """Returns the seconds that its attempts took, without the time between them, or that it has been queued."""
        if self.ended is not None and self.ended.summary.seconds > 0:
            return self.ended.summary.seconds
        if self.first_time is None or self.reading is not None:
            return None
        until, timeline = now if self.is_live else self.last_time, self.curves.timeline
        if self.queued is not None or timeline.start is None:
            return max(0.0, until - self.first_time)
        return timeline.base + max(0.0, until - timeline.start)

    def remaining(self) -> float | None:
        """Returns the seconds left at the recent pace, evaluations included; None while not known."""
        pace = self.step_s
        if not self.is_live or pace is None or not self.total_steps or self.stop_requested or not self.is_moving:
            return None
        left = max(0, self.total_steps - self.step) * pace
        every = self.config.get("eval_every")
        recent = [seconds for seconds in self.curves.first(TEST_SECONDS).means()[-3:].tolist() if isfinite(seconds)]
        if recent and isinstance(every, int):
            due = max(0, self.epochs - self.epoch + 1) // every if every else 1
            left += due * sum(recent) / len(recent)
        return left

    def devices(self) -> list[Device]:
        if self._devices is None:
            devices = {(rank.rank, rank.device) for rank in self.ranks.values() if rank.device}
            for array in self.arrays.values():
                devices.update(array.shards)
            self._devices = sorted(devices)
        return self._devices

    def note_devices(self) -> None:
        """Notes that a rank's device, or the layout of an array, has changed."""
        self._devices = None
        self.changed |= {"sharding", "ranks", "devices"}

    def log_since(self, count: int) -> list[LogEntry]:
        fresh = min(len(self.log), self.log_count - count)
        return list(islice(self.log, len(self.log) - fresh, None)) if fresh > 0 else []

    def mark_lost(self, *, removed: bool = False) -> None:
        """Marks a run lost: its journal has no end, and no supervisor is alive. `removed`: its directory is gone."""
        if self.ended is None and not self.lost:
            self.lost, self.removed = True, removed
            self.changed |= {"run", "ranks", "alerts", "devices"}

    def mark_found(self) -> None:
        """Reverts `mark_lost`: the directory is back, or the run was resumed."""
        if self.lost:
            self.lost = self.removed = False
            self.changed |= {"run", "ranks", "alerts", "devices"}

    def note_trouble(self, trouble: str) -> None:
        """Sets why the journal of a live run does not grow; "" while all is well."""
        if (text := sanitize(trouble, 300)) != self.trouble:
            self.trouble = text
            self.changed |= {"alerts", "run"}

    def take_changes(self) -> frozenset[Topic]:
        changed = frozenset(self.changed)
        self.changed.clear()
        return changed


_OF_THE_VIEW = (
    "about", "changed", "lost", "newer", "planned", "reading", "removed", "replayed", "trouble"
)  # fmt: skip

TOLERATED_S = 5.0
"""Events take this long to arrive: a smaller difference counts as none."""


class RunClock:
    """`clock` returns this machine's time, in seconds since the epoch.

    An event that arrives while the run is watched has just happened: its time shows what the supervisor's clock says.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._newest = 0.0
        self._watched = False
        self._ahead_s = 0.0

    def now(self) -> float:
        return self._clock() + self._ahead_s

    def sync(self, newest: float, *, more: bool) -> None:
        """Takes the time of a run's newest event; `more` if there are older ones still to be read."""
        if newest > self._newest and self._watched:
            ahead = newest - self._clock()
            self._ahead_s = ahead if abs(ahead) > TOLERATED_S else 0.0
        self._newest = newest
        self._watched |= not more
