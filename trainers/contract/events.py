"""What a run reports: the journal's lines and the wire format between its processes.

Each event is one JSON object with a `type`. The process where it happened sets `time` and `mono`; the journal's single
writer numbers it with `seq`. Readers skip unknown types, so new ones may be added; a field may be added with a default;
a change of meaning needs a new `JOURNAL_SCHEMA`. JSON has no NaN: a non-finite value is written as null.

`rank` is a rank's number; if one process owns all devices, it is the device's number, and the process reports each of
its devices as if it were a rank. Events about the process itself (`RankSample`, `LogLine`, `RankFailed`) then have rank
0.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from trainers.config.machine import GpuProcess as GpuProcess
from trainers.contract.event import Event as Event
from trainers.contract.metrics import HELD_OUT, MAX_COUNT, MAX_RANKS, MAX_STEP, group_of
from trainers.contract.samples import DeviceSample as DeviceSample
from trainers.contract.samples import FrameworkMemory as FrameworkMemory
from trainers.contract.samples import HostSample as HostSample
from trainers.contract.samples import MigInstance as MigInstance
from trainers.contract.samples import RankSample as RankSample
from trainers.contract.samples import TelemetrySource as TelemetrySource
from trainers.contract.sharding import Shard as Shard
from trainers.contract.sharding import Sharding as Sharding

JOURNAL_SCHEMA = 2

PhaseName: TypeAlias = Literal["preparing", "compiling", "training", "evaluating", "checkpointing", "stopping", "done"]
Status: TypeAlias = Literal["completed", "failed", "stopped"]


class RunStarted(Event, frozen=True, kw_only=True, tag="run-started"):
    """The supervisor is up; the first event of an attempt."""

    run_id: str
    schema: int = msgspec.field(default_factory=lambda: JOURNAL_SCHEMA)
    """Always written, unlike other defaults: a journal without it has schema 1."""
    attempt: int = 1
    resumed_from: int = 0
    """Step of the checkpoint that this attempt resumes from; 0 in a new run."""
    host: str
    pid: int
    config: dict[str, object]
    """As in run.toml."""
    world_size: int
    """Ranks, or devices if one process owns them all: each has its own steps."""
    steps_per_epoch: int
    total_steps: int
    flops_per_example: float | None = None
    """Floating point operations of the model's forward and backward pass; null if unknown."""


class Phase(Event, frozen=True, kw_only=True, tag="phase"):
    rank: int
    phase: PhaseName


class RankStarted(Event, frozen=True, kw_only=True, tag="rank-started"):
    """A rank's process runs and has its device; one process for all devices sends one event per device."""

    rank: int
    pid: int
    device: str
    """As the framework names it: "cpu", "cuda:0"."""
    device_name: str = ""
    uuid: str = ""
    """The GPU's UUID; "" on the CPU."""


class Metrics(Event, frozen=True, kw_only=True, tag="metrics"):
    """Values of named metrics reported by one rank, in step order.

    Entry i covers `counts[i]` consecutive steps, starting at `first_step`, and is placed at the last of them; without
    `counts` each covers one step. A rank faster than the journal keeps (50 entries/s) joins neighbouring steps into one
    entry: `values` then holds means, and `lows` and `highs` the extremes. Names are grouped by slashes: `loss`,
    `test/accuracy`.

    Raises ValueError if the lists of `values` and `counts` are empty or differ in length, or a number is out of range:
    a damaged line is no event.
    """

    rank: int
    first_step: int
    """Counted from 1 over the whole run."""
    values: dict[str, list[float | None]]
    """Metric → float [entries]; null if a value is not finite, or missing."""
    counts: list[int] | None = None
    """int [entries]: steps per entry."""
    lows: dict[str, list[float | None]] | None = None
    """Metric → float [entries]: the minimum over each entry's steps, for metrics whose extremes are kept."""
    highs: dict[str, list[float | None]] | None = None

    def __post_init__(self) -> None:
        sizes = {*map(len, self.values.values()), *([len(self.counts)] if self.counts is not None else [])}
        if len(sizes) != 1 or 0 in sizes:
            raise ValueError("the lists of `values` and `counts` are empty or differ in length")
        counted = not self.counts or 0 < min(self.counts) <= max(self.counts) < MAX_COUNT
        if not counted or not 0 <= self.rank < MAX_RANKS or not 0 <= self.first_step <= self.last_step <= MAX_STEP:
            raise ValueError("a rank, step or count is out of range")

    @property
    def is_training(self) -> bool:
        """Whether it reports training, and so how far its rank has come: not if all its metrics are held-out ones."""
        return any(group_of(name) not in HELD_OUT for name in self.values)

    def __len__(self) -> int:
        """Its number of entries."""
        return len(next(iter(self.values.values())))

    @property
    def last_step(self) -> int:
        return self.first_step + (sum(self.counts) if self.counts else len(self)) - 1


class Checkpoint(Event, frozen=True, kw_only=True, tag="checkpoint"):
    """A checkpoint is committed: complete on disk, under its name."""

    step: int
    epoch: float
    """Passes over the data up to it; fractional within one."""
    name: str
    """Its directory in the run's `checkpoints/`."""
    bytes: int
    seconds: float
    """From copying its arrays to its commit."""
    best: bool = False
    """No checkpoint of this run has a higher test accuracy."""


class LogLine(Event, frozen=True, kw_only=True, tag="log"):
    """A line that a rank or the supervisor wrote; undecodable bytes replaced, at most 8 KiB."""

    rank: int | None
    """None: the run's own processes."""
    stream: Literal["stdout", "stderr", "run"]
    text: str


class Alert(Event, frozen=True, kw_only=True, tag="alert"):
    """Something that a person should see, in plain words.

    Some last for a while: a GPU that is too hot, a disk that is nearly full. When that is over, an alert of the same
    kind, rank and device follows with `ended`.
    """

    kind: str
    """nan, hang, stopped, reaper, log-flood, telemetry, thermal, power, ecc, gpu-memory, gpu-idle, gpu-lost, disk, shm,
    …"""
    severity: Literal["info", "warning", "error"] = "warning"
    rank: int | None = None
    device: str = ""
    """The UUID of the GPU that it concerns; "" for none."""
    step: int | None = None
    text: str
    ended: bool = False
    """The condition of an earlier alert is over."""


class Stacks(Event, frozen=True, kw_only=True, tag="stacks"):
    """The Python stacks of a rank's process when the run made no progress; an alert follows."""

    rank: int
    pid: int
    text: str
    """As `faulthandler` writes them, the main thread last, control characters replaced; at most 64 KiB."""


class StopRequested(Event, frozen=True, kw_only=True, tag="stop-requested"):
    now: bool = False
    """True: at once; False: after the step that all ranks agree on."""
    save: bool = False
    """A checkpoint is saved before the end."""
    by: str = ""
    """Source of the request: "command", "SIGTERM", "nan_policy", "removal"."""


class CheckpointRequested(Event, frozen=True, kw_only=True, tag="checkpoint-requested"):
    by: str = ""
    """Source of the request: "command", "SIGUSR1"."""


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
    step: int = 0
    """Its last reported step."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A run's results; null for what it did not reach."""

    steps: int = 0
    epochs: float = 0.0
    """Passes over the data; fractional when stopped within one."""
    examples_per_second: float | None = None
    """Over the epochs after the first; with one epoch, over the steps after the first tenth. Evaluation and
    checkpoints excluded."""
    loss: float | None = None
    """The last step's, mean over the ranks."""
    test_loss: float | None = None
    test_accuracy: float | None = None
    best_accuracy: float | None = None
    seconds: float = 0.0
    """From the supervisor's start to the end of the last rank."""


class RunEnded(Event, frozen=True, kw_only=True, tag="run-ended"):
    status: Status
    reason: str
    summary: Summary
    failed_rank: int | None = None


AnyEvent: TypeAlias = (
    RunStarted
    | Phase
    | RankStarted
    | Metrics
    | Sharding
    | Checkpoint
    | DeviceSample
    | RankSample
    | FrameworkMemory
    | HostSample
    | TelemetrySource
    | LogLine
    | Alert
    | Stacks
    | StopRequested
    | CheckpointRequested
    | RankFailed
    | RunEnded
)

_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)
_encoder = msgspec.json.Encoder()


def encode(event: Event) -> bytes:
    """Encodes an event as one JSON line, newline included."""
    return _encoder.encode(event) + b"\n"


def decode(line: bytes) -> AnyEvent | None:
    """Decodes one JSON line; None for a torn line or an unknown type."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
