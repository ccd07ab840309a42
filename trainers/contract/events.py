"""What a run reports: the journal's lines and the wire format between its processes.

Each event is one JSON object with a `type`. The process where it happened sets `time` and `mono`; the journal's single
writer numbers it with `seq`. Readers skip unknown types, so new ones may be added; a field may be added with a default;
a change of meaning needs a new `JOURNAL_SCHEMA`. JSON has neither NaN nor infinities: each is written as null, and a
metric's infinities are named beside its values.

`rank` is a rank's number; if one process owns all devices, it is the device's number, and the process reports each of
its devices as if it were a rank. Events about the process itself (`RankSample`, `LogLine`, `RankFailed`) then have rank
0.

In samples null means not available, never zero: a device that does not report its fan's speed may have none. Rates
(`…_per_s`) are null in the first sample, because a rate takes two.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import accumulate, islice
from math import inf, isfinite
from time import monotonic
from time import time as wall_time
from typing import Literal, TypeAlias

import msgspec

from tuiapp.trainers.config.machine import GpuProcess
from tuiapp.trainers.contract.lines import encode_line
from tuiapp.trainers.contract.metrics import (
    BESIDE_STEPS,
    HELD_OUT,
    LOSS,
    MAX_COUNT,
    MAX_RANKS,
    MAX_STEP,
    STEP_TIME,
    group_of,
)

JOURNAL_SCHEMA = 2

MAX_FACTS = 1000
"""Keys of a script's configuration, and of its summary."""

MAX_FIGURES = 64
"""Metrics of a script whose figures its summary has: it is repeated in the journal."""

PhaseName: TypeAlias = Literal[
    "preparing", "connecting", "compiling", "training", "evaluating", "checkpointing", "profiling", "stopping", "done"
]
NodeState: TypeAlias = Literal["joined", "silent", "back", "lost"]
Status: TypeAlias = Literal["completed", "failed", "stopped"]


class Event(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, gc=False):
    """Fields common to all events, which are never part of a cycle: the garbage collector skips them."""

    seq: int = 0
    """1, 2, 3 … in the journal; 0 before the writer has numbered it."""
    time: float = msgspec.field(default_factory=wall_time)
    """Seconds since the epoch, in the process where it happened."""
    mono: float = msgspec.field(default_factory=monotonic)
    """Seconds on the host's monotonic clock: orders events of one host even if its clock is set."""
    node: int = 0
    """Where it happened; 0 is the supervisor's machine. Of other nodes `time` and `mono` are as of its clocks."""


class RunStarted(Event, frozen=True, kw_only=True, tag="run-started"):
    """The supervisor is up; the first event of an attempt."""

    run_id: str
    schema: int = msgspec.field(default_factory=lambda: JOURNAL_SCHEMA)
    """Always written, unlike other defaults: a journal without it has schema 1."""
    attempt: int = 1
    resumed_from: int | None = 0
    """Step of the checkpoint that this attempt resumes from; 0 in a new run.

    Null for a script, which resumes from a checkpoint of its own: this attempt's first metrics of training show from
    which step on it replaces what earlier attempts did.
    """
    host: str
    nodes: int = 1
    pid: int
    config: dict[str, object]
    """The configuration as in run.toml."""
    world_size: int
    """Ranks, or devices if one process owns them all: each has its own steps."""
    steps_per_epoch: int = 0
    """0 if not known."""
    total_steps: int = 0
    """0 if not known."""
    job: str = ""
    """Id of the Slurm job that it is part of, of an array with its task, "17_3"; "" for none."""
    part: tuple[int, int] | None = None
    """Number of the node, from 0, and how many there are, if somebody else started ranks on several; null otherwise.

    Those of each node are a run of their own, whose ranks have their numbers in the whole job.
    """
    flops_per_example: float | None = None
    """Floating point operations of the model's forward and backward pass; null if unknown."""


class Node(Event, frozen=True, kw_only=True, tag="node"):
    """Another node of the run, `node`, has changed its state."""

    host: str
    state: NodeState


class Queued(Event, frozen=True, kw_only=True, tag="queued"):
    """The run waits in the queue, or its Slurm job does; written before the supervisor is up or when it waits again."""

    job: str
    """The Slurm job; "" in the queue of the directory of runs."""
    reason: str = ""
    """Why it waits, as Slurm says it: Priority, Resources …"""
    start: str = ""
    """When Slurm expects to start it, in the cluster's local time."""


class Phase(Event, frozen=True, kw_only=True, tag="phase"):
    rank: int
    phase: PhaseName


class RankStarted(Event, frozen=True, kw_only=True, tag="rank-started"):
    """A rank's process runs and has its device; one process for all devices sends one event per device."""

    rank: int
    pid: int
    device: str
    """The device as the framework names it: "cpu", "cuda:0"."""
    device_name: str = ""
    uuid: str = ""
    """The GPU's UUID; "" on the CPU."""


class Metrics(Event, frozen=True, kw_only=True, tag="metrics"):
    """Values of named metrics reported by one rank, in step order.

    Entry i covers `counts[i]` consecutive steps, starting at `first_step`, and is placed at the last of them; without
    `counts` each covers one step. A rank that reports more than the journal keeps joins neighbours into one entry:
    `values` then holds means, or what `join` of `tuiapp.trainers.run.step_batch` says, and `lows`, `highs` and `lasts`
    what it joined. Names are grouped by slashes: `loss`, `test/accuracy`. A name that is not there was not reported.

    Raises ValueError if the lists of `values` and `counts` are empty or differ in length, or a number is out of range:
    a damaged line is no event.
    """

    rank: int
    first_step: int
    """Counted from 1 over the whole run."""
    values: dict[str, list[float | None]]
    """Metric → float [entries], which may be infinite; null is NaN."""
    counts: list[int] | None = None
    """int [entries]: steps per entry."""
    lows: dict[str, list[float | None]] | None = None
    """Metric → float [entries]: the least finite value of each entry, of metrics that differ within one."""
    highs: dict[str, list[float | None]] | None = None
    lasts: dict[str, list[float | None]] | None = None
    """Metric → the last value of each entry. Null is NaN or, where the entry's value is infinite, that."""
    rows: list[int] | None = None
    """int [entries]: a script's reports in each entry. Null: one each; of a built-in trainer as many as steps."""
    infinite: dict[str, dict[int, int]] | None = None
    """Metric → entry → 1 or -1: those of `values` that JSON cannot hold."""

    def __post_init__(self) -> None:
        sizes = {len(column) for column in (*self.values.values(), self.counts, self.rows) if column is not None}
        if len(sizes) != 1 or 0 in sizes:
            raise ValueError("the lists of `values` and `counts` are empty or differ in length")
        counted = not self.counts or 0 < min(self.counts) <= max(self.counts) < MAX_COUNT
        if not counted or not 0 <= self.rank < MAX_RANKS or not 0 <= self.first_step <= self.last_step <= MAX_STEP:
            raise ValueError("a rank, step or count is out of range")
        for name, signs in (self.infinite or {}).items():
            column = self.values.get(name, [])
            for entry, sign in signs.items():
                if 0 <= entry < len(column):
                    column[entry] = inf if sign > 0 else -inf

    @property
    def is_training(self) -> bool:
        """Whether it reports training, and so how far its rank has come: not if its metrics are held out, or late."""
        # Asked of every event several times; most have this.
        if LOSS in self.values:
            return True
        return any(group_of(name) not in HELD_OUT and name not in BESIDE_STEPS for name in self.values)

    def __len__(self) -> int:
        """Returns the number of entries."""
        for column in self.values.values():
            return len(column)
        return 0

    @property
    def last_step(self) -> int:
        if self.counts:
            return self.first_step + sum(self.counts) - 1
        for column in self.values.values():
            return self.first_step + len(column) - 1
        return self.first_step - 1

    def joined(self) -> list[int]:
        """Returns how many reports each entry joins."""
        if self.rows is None and (self.lows or STEP_TIME in self.values):
            return self.counts or [1] * len(self)
        return self.rows or [1] * len(self)

    def places(self) -> list[tuple[int, float]]:
        """Returns the last step of each entry, and when it was made, in seconds since the epoch."""
        counts = self.counts or [1] * len(self)
        spent = [
            (seconds if seconds and isfinite(seconds) else 0.0) * count
            for seconds, count in zip(self.values.get(STEP_TIME) or [0.0] * len(self), counts, strict=True)
        ]
        # The event's time is that of its last step.
        steps, times = (
            accumulate(counts, initial=self.first_step - 1),
            accumulate(spent, initial=self.time - sum(spent)),
        )
        return list(zip(steps, times, strict=True))[1:]


class Purged(Event, frozen=True, kw_only=True, tag="purged"):
    """What a rank has reported of some names at a step and later does not count: it goes on from before that step."""

    rank: int
    step: int
    names: list[str]


class Checkpoint(Event, frozen=True, kw_only=True, tag="checkpoint"):
    """A checkpoint is committed: complete on disk, under its name."""

    step: int
    epoch: float
    """Passes over the data up to it; fractional within one."""
    name: str
    """The name of its directory in the run's `checkpoints/`."""
    bytes: int
    seconds: float
    """From copying its arrays to its commit."""
    best: bool = False
    """No earlier checkpoint of this run has as good an evaluation, by the key `best` and then the other figure."""


WORST_EXAMPLES = "worst examples"
"""Under this name the pictures of an evaluation's worst examples are kept, in their order."""


class WorstExample(msgspec.Struct, frozen=True, array_like=True):
    """An example of the test set."""

    number: int
    """Counted from 0."""
    label: int
    predicted: int
    loss: float


class Predictions(Event, frozen=True, kw_only=True, tag="predictions"):
    """What the model of a built-in trainer made of each class of the test set in an evaluation.

    Raises ValueError if `counts` is no table: a damaged line is no event.
    """

    step: int
    counts: list[list[int]]
    """int [classes, classes]: examples of each class (row) by the class predicted (column), or int [classes, 2]: right
    and wrong, where the classes are too many."""
    names: list[str] = []
    """The classes' names; empty if they are numbers only."""
    worst: list[WorstExample] = []
    """The examples with the highest loss, that first. Of a text, as above, an example is a byte."""
    samples: list[str] = []
    """Texts that the model wrote, of a task that has it write."""

    def __post_init__(self) -> None:
        widths = {*map(len, self.counts)}
        if widths - {2, len(self.counts)} or len(widths) != 1 or min(map(min, self.counts)) < 0:
            raise ValueError("the counts are no table of classes")


class Media(Event, frozen=True, kw_only=True, tag="media"):
    """A picture or a text of a step; of a name and a step there may be several."""

    rank: int
    step: int
    name: str
    file: str
    """In the run directory's `media/`, on the rank's node."""
    kind: Literal["image", "text"]
    caption: str = ""
    removed: list[str] = []
    """Earlier files that are no longer kept."""
    left_out: int = 0
    """How many of the name were never written: they came too fast."""


class LogLine(Event, frozen=True, kw_only=True, tag="log"):
    """A line that a rank or the supervisor wrote; undecodable bytes replaced, at most 8 KiB."""

    rank: int | None
    """None: the run's own processes."""
    stream: Literal["stdout", "stderr", "run"]
    text: str


class Alert(Event, frozen=True, kw_only=True, tag="alert"):
    """Something that a person should see, in plain words.

    Some last for a while: a GPU that is too hot, a disk that is nearly full. When that is over, an alert of the same
    kind, rank, device and node follows with `ended`.
    """

    kind: str
    """nan, hang, stopped, reaper, log-flood, telemetry, thermal, power, ecc, xid, gpu-memory, gpu-idle, gpu-lost, disk,
    shm, replicas, …"""
    severity: Literal["info", "warning", "error"] = "warning"
    rank: int | None = None
    ranks: list[int] = []
    """The ranks that the others wait for, where they are several or their node is out of reach; `rank` is null then."""
    device: str = ""
    """The UUID of the GPU that it concerns; "" for none."""
    step: int | None = None
    text: str
    ended: bool = False
    """The condition of an earlier alert is over."""


BLOCKING = ("hang", "stopped")
"""Kinds of alerts that say that ranks cannot go on, and others wait for them."""


def about(alert: Alert) -> tuple[str, int | None, str, int]:
    """Returns what an alert concerns: one with `ended` ends those that concern the same."""
    return alert.kind, alert.rank, alert.device, alert.node


class Facts(Event, frozen=True, kw_only=True, tag="facts"):
    """What a script of the user's own says of its run; a field that an event leaves empty keeps its value."""

    name: str = ""
    config: dict[str, object] = {}
    """Added to what earlier events gave, as `summary` is."""
    defaults: list[str] = []
    """Keys of `config` that have the defaults of the library that reads it: the least of interest of very many."""
    summary: dict[str, object] = {}
    total_steps: int = 0
    step_metrics: dict[str, str] = {}
    """Metric, or with `*` several → the metric that they are drawn by instead of steps."""

    def step_metric_of(self, name: str) -> str:
        """Returns the metric that another is drawn by: its own, or that of the last pattern; "" if by steps."""
        for pattern in (name, *reversed(self.step_metrics)):
            if pattern in self.step_metrics and (pattern == name or fnmatchcase(name, pattern)):
                metric = self.step_metrics[pattern]
                return "" if metric == name else metric
        return ""

    def followed_by(self, later: Facts) -> Facts:
        """Returns what both say together; of each the first `MAX_FACTS` keys."""
        return msgspec.structs.replace(
            later,
            name=later.name or self.name,
            config=dict(islice((self.config | later.config).items(), MAX_FACTS)),
            defaults=list(dict.fromkeys([*self.defaults, *later.defaults]))[:MAX_FACTS],
            summary=dict(islice((self.summary | later.summary).items(), MAX_FACTS)),
            total_steps=max(0, later.total_steps) or self.total_steps,
            step_metrics=dict(islice((self.step_metrics | later.step_metrics).items(), MAX_FACTS)),
        )


class Stacks(Event, frozen=True, kw_only=True, tag="stacks"):
    """The Python stacks of a rank's process when the run made no progress; an alert follows."""

    rank: int
    pid: int
    text: str
    """The stacks as `faulthandler` writes them, the main thread last, control characters replaced; at most 64 KiB."""


PRUNED: Literal["pruned"] = "pruned"
"""What a search gives as the reason for which it stops a run."""


class StopRequested(Event, frozen=True, kw_only=True, tag="stop-requested"):
    now: bool = False
    """True: at once; False: after the step that all ranks agree on."""
    save: bool = False
    """A checkpoint is saved before the end."""
    by: str = ""
    """Source of the request: "command", "SIGTERM", "nan_policy", "removal", "Slurm", "Slurm's time limit", `PRUNED`."""
    agreed: bool = False
    """Whether the ranks agree on a step and end by themselves; a script's that do not ask get SIGTERM."""


class CheckpointRequested(Event, frozen=True, kw_only=True, tag="checkpoint-requested"):
    by: str = ""
    """Source of the request: "command", "SIGUSR1"."""


class ProfileRequested(Event, frozen=True, kw_only=True, tag="profile-requested"):
    steps: int
    by: str = ""
    """Source of the request: "command"."""


KINDS = KERNELS, COMMUNICATION, COPIES, DATA, HOST = (
    "kernels",
    "communication",
    "copies",
    "waiting for data",
    "host",
)
"""What a device does, the first of these at a time; `HOST`: nothing, while Python and the framework work."""


class Operation(msgspec.Struct, frozen=True, array_like=True):
    """What a profiler has timed under one name."""

    name: str
    seconds: float
    """Over all its calls, what it calls itself left out."""
    calls: int


class StepMemory(msgspec.Struct, frozen=True):
    """What a compiled step takes of each device, in bytes, by its compiler's plan."""

    arguments: int
    """The model, the optimizer's state, and the data that lies on the device."""
    outputs: int
    aliased: int
    """Bytes of the outputs that take an argument's place."""
    temporary: int
    """Held while it computes: activations, gradients."""

    @property
    def total(self) -> int:
        return self.arguments + self.outputs - self.aliased + self.temporary


class Profile(Event, frozen=True, kw_only=True, tag="profile"):
    """Where the time of some steps went, on one rank."""

    rank: int
    step: int
    """The first of them."""
    steps: int
    seconds: float
    """From the first one's start to the end of the last, with the profiler's own cost."""
    spent: dict[str, float] = {}
    """What the rank's device did, as `KINDS` → seconds; of what overlaps the first counts."""
    largest: list[Operation] = []
    """The operations with the most seconds, longest first."""
    peak_bytes: int | None = None
    """The most that the device's live arrays took in them; null where the framework does not tell."""
    process_peak_bytes: int | None = None
    """The most that they took since the process began; null where the framework does not tell."""
    step_memory: StepMemory | None = None
    """The memory of the compiled step; null where the framework compiles none."""
    trace: str = ""
    """Path in the run's directory, on the rank's node, of a file for Perfetto; "" if the rank wrote none."""


class RankFailed(Event, frozen=True, kw_only=True, tag="rank-failed"):
    """A rank ended abnormally; RunEnded names the first cause."""

    rank: int
    exit_code: int | None = None
    """None if a signal ended it."""
    signal: str = ""
    """SIGKILL, SIGSEGV …; "" if it exited."""
    hint: str = ""
    """More about the cause: whether the kernel's out-of-memory killer was active."""
    error: str = ""
    """The exception's last line."""
    traceback: str = ""
    last_lines: list[str] = msgspec.field(default_factory=list)
    """The end of its stderr."""
    step: int | None = 0
    """The rank's last reported step; null if it reports none."""
    phase: PhaseName | None = None
    """What it did; null if it does not report that, as a script."""
    lost: bool = False
    """Whether its node is out of reach, as `error` says: what became of the rank itself is not known."""


class Figures(msgspec.Struct, frozen=True, array_like=True):
    """What a metric has come to; null for what was never finite."""

    last: float | None = None
    least: float | None = None
    greatest: float | None = None

    def followed_by(self, column: Sequence[float | None], *, late: bool = False) -> Figures:
        """Returns these figures with further values; `late` ones are of earlier steps."""
        values = [value for value in (self.least, self.greatest, *column) if value is not None]
        return Figures(self.last if late else column[-1], min(values), max(values)) if values else Figures()


class Blemish(msgspec.Struct, frozen=True, kw_only=True):
    """What mars a run, whatever its status is."""

    kind: str
    """nan, diverged, hang, checkpoint, export, replicas, values, joined."""
    since_step: int | None = None
    text: str


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A run's results; null for what it did not reach."""

    steps: int = 0
    epochs: float | None = 0.0
    """Passes over the data; fractional when stopped within one; null if the length of an epoch is not known.
    Of a script as its metric `epoch` says."""
    examples_per_second: float | None = None
    """Over the epochs after an attempt's first; if it has but one, over its steps after the first tenth. Evaluation and
    checkpoints excluded. Over all attempts, as `seconds`."""
    loss: float | None = None
    """The last step's, mean over the ranks; of a script that of `loss_of`."""
    test_loss: float | None = None
    test_accuracy: float | None = None
    evaluated_on: str = "test"
    """The held-out group whose figures they are: of a script perhaps "val" or "eval"."""
    best_loss: float | None = None
    """The least test loss of all evaluations, which need not be that of the greatest accuracy."""
    best_accuracy: float | None = None
    """The greatest test accuracy of all evaluations."""
    seconds: float = 0.0
    """From the supervisor's start to the end of the last rank, over all attempts: of an earlier one up to the step from
    which a later one resumes. The time between attempts does not count."""
    metrics: dict[str, Figures] = {}
    """A script's first `MAX_FIGURES` metrics, each of the first rank that reported it, over all attempts."""
    blemishes: list[Blemish] = []
    """At most one of a kind: see `tuiapp.trainers.state.blemishes`."""


class RunEnded(Event, frozen=True, kw_only=True, tag="run-ended"):
    status: Status
    reason: str
    summary: Summary
    failed_rank: int | None = None


PLACE = "at place "


def place_name(index: int, node: int = 0) -> str:
    """Returns what stands for the UUID of a GPU that could not report one so far: no other of the run has it."""
    return f"{PLACE}{index}" + (f" of node {node}" if node else "")


class MigInstance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a GPU that acts as a device (MIG); it has no utilization, clocks or power of its own."""

    uuid: str
    name: str = ""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    processes: list[GpuProcess] | None = None


class DeviceSample(Event, frozen=True, kw_only=True, tag="device-sample"):
    """One GPU at one moment; null for what the device does not report."""

    index: int
    """The driver's, in PCI bus order."""
    uuid: str
    """Matches a rank: equal to its `RankStarted.uuid`, or to that of one of `mig`."""
    name: str
    problem: str = ""
    """Why it no longer answers, as "GPU is lost"; "" while it answers."""
    utilization_percent: float | None = None
    """Share of the time in which a kernel ran. Null under MIG."""
    memory_utilization_percent: float | None = None
    """Share of the time in which its memory was read or written."""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    has_system_memory: bool = False
    """Whether the GPU has no memory of its own, as GB10 and Jetson: both figures above are the system's."""
    processes: list[GpuProcess] | None = None
    """Processes that hold its memory, except those in `mig`; null if the driver does not report them."""
    power_w: float | None = None
    power_limit_w: float | None = None
    energy_j: float | None = None
    """Since this attempt's first sample; continues when the sampler restarts, and begins at 0 in an attempt."""
    temperature_c: float | None = None
    temperature_limit_c: float | None = None
    """Where throttling begins."""
    sm_clock_mhz: float | None = None
    sm_clock_limit_mhz: float | None = None
    memory_clock_mhz: float | None = None
    throttle_reasons: list[str] | None = None
    """Why its clocks are reduced, as "power limit"; an idle GPU's low clocks are no throttling."""
    pcie_rx_bytes_per_s: float | None = None
    pcie_tx_bytes_per_s: float | None = None
    nvlink_rx_bytes_per_s: float | None = None
    """Over all its links."""
    nvlink_tx_bytes_per_s: float | None = None
    fan_percent: float | None = None
    ecc_corrected: int | None = None
    """Corrected memory errors since the driver was loaded."""
    ecc_uncorrected: int | None = None
    """Uncorrected memory errors since the driver was loaded."""
    performance_state: int | None = None
    """0 (P0, fastest) to 15."""
    mig: list[MigInstance] | None = None
    """The GPU's MIG instances; null while MIG is off."""


class RankSample(Event, frozen=True, kw_only=True, tag="rank-sample"):
    rank: int
    cpu_percent: float | None = None
    """100 is one core; null in its first sample."""
    rss_bytes: int
    shared_bytes: int | None = None
    """Part of `rss_bytes` that other processes may share."""
    threads: int
    read_bytes_per_s: float | None = None
    """From storage, not from the page cache."""
    write_bytes_per_s: float | None = None


class FrameworkMemory(Event, frozen=True, kw_only=True, tag="framework-memory"):
    """What a framework holds of a rank's device, by torch.cuda.memory_stats or jax's Device.memory_stats.

    NVML's figure counts what is merely reserved. Not sent on CPU devices, which have no such figures.
    """

    rank: int
    used_bytes: int | None = None
    """In live arrays."""
    peak_bytes: int | None = None
    reserved_bytes: int | None = None
    """Taken from the driver, used or not."""
    limit_bytes: int | None = None
    """The most that the framework may take."""


class HostSample(Event, frozen=True, kw_only=True, tag="host-sample"):
    cpu_percent: float
    """0 to 100 over all cores."""
    cpu_percent_per_core: list[float] | None = None
    """0 to 100 each, for every core of the host."""
    cpu_cores: int
    """Cores that the run may use."""
    load_1m: float
    load_5m: float | None = None
    load_15m: float | None = None
    memory_used_bytes: int
    memory_total_bytes: int
    swap_used_bytes: int | None = None
    swap_total_bytes: int | None = None
    """0 is a host without swap."""
    shm_used_bytes: int | None = None
    """/dev/shm, through which processes share arrays."""
    shm_total_bytes: int | None = None
    disk_free_bytes: int
    """In the run directory's file system, free to its user."""
    disk_total_bytes: int | None = None
    network_rx_bytes_per_s: float | None = None
    """Over all interfaces but loopback."""
    network_tx_bytes_per_s: float | None = None


class TelemetrySource(Event, frozen=True, kw_only=True, tag="telemetry-source"):
    """A source of samples has failed, or works again: sent on each change."""

    source: str
    """"NVML", "AMD SMI", or "sampler", the process that queries them all."""
    problem: str = ""
    """Why it fails, in words; "": it works."""


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    rank: int
    device: str
    index: list[tuple[int, int]]
    """Start and stop in the global array, one pair per dimension."""
    bytes: int


class Sharding(Event, frozen=True, kw_only=True, tag="sharding"):
    """The layout of one process's shards of an array; a view joins the events of an `array` over all ranks."""

    array: str
    """"batch", "labels", "parameter conv1.weight", …"""
    shape: list[int]
    """The global array's shape."""
    dtype: str
    mesh: dict[str, int]
    """Mesh axis → devices along it."""
    spec: list[str | None]
    """Per dimension the mesh axis that splits it, null where it is not split."""
    shards: list[Shard]
    why_whole: str = ""
    """Why each device has the whole of a weight that a rule would split."""


class Held(Event, frozen=True, kw_only=True, tag="held"):
    """What a device holds of the training state between steps, where that is split over the devices."""

    rank: int
    device: str
    held: dict[str, int]
    """Kind, "parameters", "optimizer" or, where one is kept, "average" → bytes."""
    whole: dict[str, int]
    """Bytes of the whole arrays, which a replica would have."""
    exchanged: dict[str, dict[str, int]] = {}
    """Part of the model → collective, and when in a step → bytes of the whole arrays."""


class Differing(msgspec.Struct, frozen=True, array_like=True):
    rank: int
    array: str
    """The first in which it differs."""


class Replicas(Event, frozen=True, kw_only=True, tag="replicas"):
    """The devices' replicas of the model were compared after an epoch, bit for bit, by checksums."""

    step: int
    replicas: int
    arrays: int
    """Arrays of each replica: parameters, and buffers that are to be equal."""
    differing: list[Differing] = []
    """Replicas that differ from the majority; on a tie, from the lowest rank's. Empty if all are equal."""


class InitialWeights(Event, frozen=True, kw_only=True, tag="initial-weights"):
    """What a built-in trainer's new model began with, where that is not its seed's alone, and what of it is frozen.

    Names are the framework's, as in checkpoints; of many of a kind the first are listed.
    """

    source: str = ""
    """The file of `init_from`; "": all weights are new."""
    arrays: int = 0
    """Arrays of the model: parameters and statistics."""
    matched: int = 0
    """Arrays that were taken over: the file has the same name and shape."""
    reshaped: list[str] = []
    """Arrays that have another shape in the file, `fc2.weight [10, 128], here [5, 128]`: they are new."""
    missing: list[str] = []
    """Arrays that the file does not have: they are new."""
    unused: list[str] = []
    """Arrays of the file that the model has not."""
    frozen: int = 0
    """Numbers in the parameters that `freeze` names."""
    parameters: int = 0
    """Numbers in all parameters."""


AnyEvent: TypeAlias = (
    RunStarted
    | Node
    | Queued
    | Phase
    | RankStarted
    | Metrics
    | Purged
    | Sharding
    | Held
    | Replicas
    | InitialWeights
    | Checkpoint
    | Predictions
    | Media
    | DeviceSample
    | RankSample
    | FrameworkMemory
    | HostSample
    | TelemetrySource
    | LogLine
    | Alert
    | Facts
    | Stacks
    | StopRequested
    | CheckpointRequested
    | ProfileRequested
    | Profile
    | RankFailed
    | RunEnded
)

_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


def encode(event: Event) -> bytes:
    """Encodes an event as one JSON line, newline included; no text or value in it can prevent that."""
    return encode_line(event)


def decode(line: bytes) -> AnyEvent | None:
    """Decodes one JSON line; None for a torn line or an unknown type."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
