"""The state of one rank and of one node, and how an array is laid out over devices."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import prod
from typing import Literal, NamedTuple, TypeAlias

from tuiapp.trainers.contract.events import (
    FrameworkMemory,
    HostSample,
    Metrics,
    PhaseName,
    RankFailed,
    RankSample,
    Shard,
    Sharding,
)
from tuiapp.trainers.contract.metrics import LOSS, last_examples, loss_of
from tuiapp.trainers.state.efficiency import StepTotals
from tuiapp.trainers.state.readings import History, HostHistory, new_history

PACE_WINDOW_S = 15.0  # averaging window of a rank's speed: long enough to be calm, short enough to follow a change
SILENT_AFTER_S = 5.0  # a rank in training is silent after this long, unless its steps are longer
SILENT_STEPS = 4  # of its own steps, before a rank is silent


MAX_BATCHES = 96  # most batches over which a rank's speed is averaged


class Report(NamedTuple):
    time: float
    last_step: int
    steps: int
    seconds: float
    examples: float


@dataclass(slots=True)
class Pace:
    _batches: deque[Report] = field(default_factory=deque)
    _steps: int = 0
    _seconds: float = 0.0
    _examples: float = 0.0

    def add(self, batch: Report) -> None:
        if len(self._batches) == MAX_BATCHES:
            self._forget()
        self._batches.append(batch)
        self._steps += batch.steps
        self._seconds += batch.seconds
        self._examples += batch.examples
        while len(self._batches) > 2 and self._span_s > PACE_WINDOW_S:
            self._forget()

    @property
    def last_time(self) -> float:
        """Time of its last batch; 0 before the first."""
        return self._batches[-1].time if self._batches else 0.0

    @property
    def _span_s(self) -> float:
        """Seconds from the first batch to the last: of their steps or, if not reported, by the clock."""
        first, last = self._batches[0], self._batches[-1]
        return self._seconds - first.seconds if self._seconds > 0 else last.time - first.time

    def _forget(self) -> None:
        old = self._batches.popleft()
        self._steps -= old.steps
        self._seconds -= old.seconds
        self._examples -= old.examples

    @property
    def seconds_per_step(self) -> float | None:
        return self._seconds / self._steps if self._batches and self._steps > 0 and self._seconds > 0 else None

    @property
    def step_s(self) -> float | None:
        """Seconds per step: as reported or, if no step times are, by the clock from the first report to the last."""
        if self._seconds > 0 or len(self._batches) < 2:
            return self.seconds_per_step
        steps, seconds = self._batches[-1].last_step - self._batches[0].last_step, self._span_s
        return seconds / steps if steps > 0 and seconds > 0 else None

    @property
    def report_interval_s(self) -> float:
        """Mean time between two reports; 0 before the second."""
        return self._span_s / (len(self._batches) - 1) if len(self._batches) > 1 else 0.0

    @property
    def examples_per_second(self) -> float | None:
        return self._examples / self._seconds if self._examples > 0 and self._seconds > 0 else None

    def step_at(self, time: float) -> float:
        """Returns the step that the rank had reached at that time, by its reports."""
        later: Report | None = None
        for batch in reversed(self._batches):
            if batch.time <= time:
                if later is None or later.time <= batch.time:
                    return batch.last_step
                part = (time - batch.time) / (later.time - batch.time)
                return batch.last_step + part * (later.last_step - batch.last_step)
            later = batch
        return later.last_step - later.steps if later else 0


@dataclass(slots=True)
class RankState:
    rank: int
    pid: int | None = None
    node: int | None = None  # of several, as its events say; None before them
    device: str = ""
    device_name: str = ""
    uuid: str = ""  # its GPU's; "" on the CPU
    phase: PhaseName | None = None
    step: int = 0  # last reported; before the first, that of the checkpoint it resumes from, or 0
    loss: float | None = None  # of that step; None where it was not finite, or before the first step
    loss_name: str = ""  # the metric; "" before the first
    examples: float = 0.0  # of that step; 0 if it does not say
    last_time: float = 0.0  # of its last report, in seconds since the epoch; 0 before that
    process: RankSample | None = None  # latest sample of its process
    cpu: History = field(default_factory=new_history)  # of its process; 100 is one core
    memory: History = field(default_factory=new_history)  # of its process, in bytes
    framework: FrameworkMemory | None = None  # what its framework holds on its device
    failure: RankFailed | None = None
    # When the run was last reported to stand still, in seconds since the epoch; what a rank reports of that time says
    # nothing of its speed.
    stalled_at: float = 0.0
    pace: Pace = field(default_factory=Pace)

    def add(self, event: Metrics, batch: StepTotals | None) -> None:
        """Adds values, and what their steps took, None where that is not said."""
        values, last_step = event.values, event.last_step
        if batch is not None:
            if self.pace.seconds_per_step is None:
                self.pace = Pace()
            if not event.time - batch.seconds <= self.stalled_at <= event.time:
                steps = last_step - event.first_step + 1
                self.pace.add(Report(event.time, last_step, steps, batch.seconds, batch.examples))
        elif event.is_training and last_step > self.step and self.pace.seconds_per_step is None:
            if self.pace.last_time < self.stalled_at <= event.time:
                self.pace = Pace()
            self.pace.add(Report(event.time, last_step, 0, 0.0, 0.0))
        # Where nothing says how long a step takes, what is evaluated alone is progress, too.
        if last_step >= self.step and (event.is_training or self.pace.seconds_per_step is None):
            self.step = last_step
            if (name := loss_of(values)) and (name == LOSS or self.loss_name in ("", name)):
                self.loss, self.loss_name = values[name][-1], name
                self.examples = last_examples(values, event.counts)

    def restart(self, step: int) -> None:
        self.pid, self.phase, self.failure = None, None, None
        self.process = self.framework = None
        self.cpu.clear()
        self.memory.clear()
        self.step, self.loss, self.loss_name, self.last_time = step, None, "", 0.0
        self.stalled_at = 0.0
        self.pace = Pace()

    @property
    def silent_after_s(self) -> float:
        return max(SILENT_AFTER_S, SILENT_STEPS * (self.pace.seconds_per_step or self.pace.report_interval_s))

    def behind(self, leader: RankState, now: float) -> int:
        """Returns how many steps the rank is behind the leader.

        Ranks report in batches at different moments, so the comparison is made at the moment of this rank's last
        report; a rank that is silent is compared with the leader's last step.
        """
        if leader is self or not self.step:
            return max(0, leader.step - self.step)
        if now - self.last_time > self.silent_after_s:
            return max(0, leader.step - self.step)
        return max(0, int(leader.pace.step_at(self.last_time)) - self.step)


NodeStatus: TypeAlias = Literal["awaited", "joined", "silent", "lost"]

MAX_NODES = 1024


@dataclass(slots=True)
class NodeState:
    number: int
    host: str = ""  # its name; "" before it has joined
    status: NodeStatus = "awaited"
    sample: HostSample | None = None  # the latest
    history: HostHistory = field(default_factory=HostHistory)


Device: TypeAlias = tuple[int, str]
"""Rank and device: two ranks on CPUs both call theirs "cpu"."""

Block: TypeAlias = tuple[tuple[int, int], ...]  # start and stop per dimension
Layout: TypeAlias = Literal["single", "replicated", "split", "split and replicated"]


@dataclass(slots=True)
class ArrayState:
    name: str
    shape: tuple[int, ...] = ()
    dtype: str = ""
    mesh: dict[str, int] = field(default_factory=dict)
    spec: tuple[str | None, ...] = ()
    shards: dict[Device, list[Shard]] = field(default_factory=dict)
    why_whole: str = ""

    def add(self, event: Sharding) -> None:
        """Adds one process's report; another shape or mesh starts a new array."""
        shape, spec = tuple(event.shape), tuple(event.spec)
        if (shape, event.dtype, event.mesh, spec) != (self.shape, self.dtype, self.mesh, self.spec):
            self.shape, self.dtype, self.mesh, self.spec = shape, event.dtype, event.mesh, spec
            self.shards.clear()
        self.why_whole = event.why_whole or self.why_whole
        reported: dict[Device, list[Shard]] = {}
        for shard in event.shards:
            reported.setdefault((shard.rank, shard.device), []).append(shard)
        self.shards.update(reported)

    @property
    def devices(self) -> list[Device]:
        return sorted(self.shards)

    def blocks(self) -> dict[Block, list[Device]]:
        blocks: dict[Block, list[Device]] = {}
        for device in self.devices:
            for shard in self.shards[device]:
                blocks.setdefault(tuple((start, stop) for start, stop in shard.index), []).append(device)
        return dict(sorted(blocks.items()))

    @property
    def layout(self) -> Layout:
        blocks = self.blocks()
        copies = max(map(len, blocks.values()), default=0)
        if len(blocks) <= 1:
            return "replicated" if copies > 1 else "single"
        return "split and replicated" if copies > 1 else "split"

    @property
    def bytes_per_device(self) -> int:
        return max((sum(shard.bytes for shard in shards) for shards in self.shards.values()), default=0)

    def split_dimensions(self) -> list[int]:
        blocks = list(self.blocks())
        dimensions = min(map(len, blocks), default=0)
        return [d for d in range(dimensions) if len({block[d] for block in blocks}) > 1]

    def by_node(self, node_of: Callable[[int], int]) -> ArrayState | None:
        """Returns the array as whole nodes hold it; None where the parts of some node's devices form no block."""
        array = ArrayState(self.name, self.shape, self.dtype, self.mesh, self.spec)
        parts: dict[int, dict[Block, int]] = {}
        for (rank, _), shards in self.shards.items():
            parts.setdefault(node_of(rank), {}).update((tuple(shard.index), shard.bytes) for shard in shards)
        for node, blocks in sorted(parts.items()):
            sides = [
                (min(start for start, _ in side), max(stop for _, stop in side)) for side in zip(*blocks, strict=True)
            ]
            if _volume(sides) != sum(map(_volume, blocks)):
                return None
            shard = Shard(rank=node, device=f"n{node}", index=sides, bytes=sum(blocks.values()))
            array.shards[node, shard.device] = [shard]
        return array


def _volume(block: Iterable[tuple[int, int]]) -> int:
    return prod(stop - start for start, stop in block)


def letter(index: int) -> str:
    """Returns a device's letter: a, b … z, then aa and so on."""
    name = ""
    index += 1
    while index > 0:
        index, digit = divmod(index - 1, 26)
        name = chr(ord("a") + digit) + name
    return name
