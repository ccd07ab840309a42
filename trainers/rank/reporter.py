"""Sends a rank's events without blocking training.

The training thread only appends to a backlog; another thread converts device scalars to floats, batches steps and
writes them to the supervisor's pipe. If the pipe stays full the backlog fills up, and further steps are counted instead
of kept. Losses arrive in the framework's own type, still on the device.
"""

from __future__ import annotations

import contextlib
import os
import threading
import traceback
from collections import deque
from math import isfinite
from time import monotonic, perf_counter, time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import msgspec

from tuiapp.trainers.config.run_config import BEST_OWN, figure_of
from tuiapp.trainers.contract.evaluations import Evaluated
from tuiapp.trainers.contract.events import (
    Alert,
    Checkpoint,
    Event,
    FrameworkMemory,
    Held,
    InitialWeights,
    Phase,
    PhaseName,
    Predictions,
    Profile,
    RankStarted,
    Replicas,
    Sharding,
    StepMemory,
    StopRequested,
)
from tuiapp.trainers.contract.metrics import (
    DATA_WAIT,
    EXAMPLES,
    GRADIENT_NORM,
    LEARNING_RATE,
    LOSS,
    STEP_TIME,
    TEST,
    TEST_ACCURACY,
    TEST_EXAMPLES,
    TEST_LOSS,
    TEST_SECONDS,
)
from tuiapp.trainers.rank.stop_gate import StopGate
from tuiapp.trainers.run import wire
from tuiapp.trainers.run.step_batch import Budget, pack_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tuiapp.trainers.contract.media import Content, MediaFolder
    from tuiapp.trainers.run.rank_end import RankError
    from tuiapp.trainers.run.stacks import Collectives

StepRecord: TypeAlias = tuple[int, Any, float, float, float, Any, float]
"""Step, loss, seconds, examples, learning rate, gradient norm or None, seconds waited for the batch."""

FLUSH_INTERVAL_S = 0.2
MEMORY_INTERVAL_S = 2.0
BACKLOG_STEPS = 200_000
CLOSE_TIMEOUT_S = 5.0
"""Time for converting the last losses at the end: a device that hangs never delivers them."""
UNREAD_TIMEOUT_S = 600.0
"""How long the last events wait at the end for a supervisor that lives but does not read (is suspended)."""


class Reporter:
    """Buffers a rank's events and sends them without blocking training.

    A `nan_policy` other than "warn" requests a stop at the first non-finite loss. `speaks_for` are the ranks its events
    carry: its own, or all devices' if one process owns them.
    """

    def __init__(
        self,
        rank: int,
        events_fd: int,
        gate: StopGate,
        nan_policy: str = "warn",
        speaks_for: Sequence[int] | None = None,
        steps_per_epoch: int = 0,
    ) -> None:
        self.convert: Callable[[list[Any]], Sequence[float | Sequence[float]]] = lambda losses: [
            float(loss) for loss in losses
        ]
        """Converts the losses of many steps to floats, or to one float per device and step if one process owns all
        devices: a backend sets a function that costs one device sync, not one per step.
        """
        self.memory: Callable[[], Sequence[FrameworkMemory]] | None = None
        """The framework's memory on the devices, if it reports that; called now and then, by the reporter's thread."""
        self.collectives: Callable[[], Collectives | None] | None = None
        """What the rank's process group has begun and done, if the framework knows; called by any thread in a hang."""
        self.profiler: Profiler | None = None
        """The framework's, if it has one."""
        self.profiles: Path | None = None
        """Directory of the traces."""
        self.media: MediaFolder | None = None
        """Folder of the pictures."""
        self._pictures: deque[tuple[str, int, Callable[[], Sequence[Content]]]] = deque()
        self.step_memory: StepMemory | None = None
        """The compiled step's memory, if the framework compiles it."""
        self.at_close: Callable[[], None] = lambda: None
        """Reports the steps that a backend which has failed had in flight."""
        self._memory_due = 0.0
        self._speaks_for = speaks_for or [rank]
        self.rank = rank
        self._fd = events_fd
        self._gate = gate
        self._nan_policy = nan_policy
        self._steps_per_epoch = steps_per_epoch
        self._nan_seen = False
        self.evaluated: tuple[int, Evaluated] | None = None
        """Step after which the model was evaluated last, and the result."""
        self._backlog: deque[Event | StepRecord | Named] = deque()
        self._lost = 0
        self._since = perf_counter()
        self._budget = Budget(monotonic())
        self._closing = threading.Event()
        self._writing = threading.Lock()
        self._unread = False
        self._phase: PhaseName = "preparing"
        self._thread = threading.Thread(target=self._send_forever, name="reporter", daemon=True)
        self._thread.start()

    # Called by backends; none of these waits, except `stop_before` while a stop is being agreed.

    def rank_started(self, device: str, device_name: str = "", uuid: str = "", number: int | None = None) -> None:
        """Reports the rank's device; if one process owns all devices, that of rank `number`."""
        rank, pid = self.rank if number is None else number, os.getpid()
        self._backlog.append(RankStarted(rank=rank, pid=pid, device=device, device_name=device_name, uuid=uuid))

    def phase(self, phase: PhaseName) -> None:
        """Begins a phase; step time is counted from here."""
        self._phase = phase
        self._backlog.extend(Phase(rank=rank, phase=phase) for rank in self._speaks_for)
        self.restart_clock()

    def restart_clock(self) -> None:
        """Counts step time from here."""
        self._since = perf_counter()

    def save_before(self, step: int) -> bool:
        """Tells whether to save a checkpoint of the state before this step; all ranks get the same answer.

        Call before `stop_before`: a run that stops saves first.
        """
        return self._gate.saves_before(step)

    def save_due(self, step: int) -> bool:
        """Tells whether an epoch's last step is followed by a checkpoint; all ranks get the same answer."""
        return self._gate.due_after(step)

    def stop_before(self, step: int) -> bool:
        """Tells whether the run stops before this step; all ranks get the same answer for the same step."""
        return not self._gate.enter(step)

    def profile_before(self, step: int) -> int:
        """Returns how many steps to profile from this one on, 0 for none; all ranks get the same answer."""
        return self._gate.profiles_before(step)

    def step(
        self,
        step: int,
        loss: Any,
        examples: float,
        learning_rate: float,
        gradient_norm: Any = None,
        waited_s: float = 0.0,
    ) -> None:
        """Reports a finished step, counted from 1 over the whole run; `examples` are those of a rank, or device.

        `loss` is the rank's mean loss, in the framework's type; must not be changed afterwards. If one process owns all
        devices, `convert` turns it into each device's. The norm is that before clipping, the same on all devices. For
        `waited_s` seconds the process waited for the step's batch.
        """
        now = perf_counter()
        self._enqueue((step, loss, now - self._since, examples, learning_rate, gradient_norm, waited_s))
        self._since = now

    def metrics(self, step: int, values: Mapping[str, Any]) -> None:
        """Reports named values of a step, in the framework's type; they must not be changed afterwards."""
        self._enqueue(Named(step, dict(values), time(), monotonic()))

    def _enqueue(self, record: StepRecord | Named) -> None:
        if len(self._backlog) < BACKLOG_STEPS:
            self._backlog.append(record)
        else:
            self._lost += 1

    def evaluation(self, step: int, examples: int, figures: Mapping[str, float], by: str = "") -> None:
        """Reports the result on the whole test set, "loss" and others; every rank may call this, rank 0's counts.

        `by` is the key that says by which figure runs are the best.
        """
        seconds = round(perf_counter() - self._since, 6)
        named = {f"{TEST}/{name}": value for name, value in figures.items()}
        finite = {name: value for name, value in named.items() if isfinite(value)}
        own_figure = (finite.get(f"{TEST}/{figure_of(by)[0]}"), by) if by.startswith(BEST_OWN) else ()
        self.evaluated = step, Evaluated(finite.get(TEST_LOSS), finite.get(TEST_ACCURACY), *own_figure)
        if self.rank == 0:
            self.metrics(step, {**named, TEST_EXAMPLES: examples, TEST_SECONDS: seconds})

    def send_from_rank0(self, event: Predictions | Replicas | InitialWeights | Alert) -> None:
        """Sends an event that all ranks have alike; every rank may call this, rank 0's is sent."""
        if self.rank == 0:
            self._backlog.append(event)

    def show(self, name: str, step: int, read: Callable[[], Sequence[Content]]) -> None:
        """Keeps pictures of a step, which the reporter's thread reads; every rank may call this, rank 0's count."""
        if self.rank == 0:
            self._pictures.append((name, step, read))

    def send(self, event: Sharding | Held | Checkpoint | Profile | Alert) -> None:
        self._backlog.append(event)

    def vote(self, vote_round: int) -> None:
        """Holds training at its next step and sends the vote; called by the control thread."""
        self._write(wire.encode(wire.Vote(self.rank, self._gate.vote(), vote_round)))

    def beat(self) -> None:
        self._write(wire.encode(wire.Heartbeat(self.rank, self._gate.started, self._phase)))

    def fail(self, error: RankError) -> None:
        """Sends why the rank fails; not by a file, whose disk may be full."""
        self._write(wire.encode(wire.Failed(self.rank, 1, error)))

    def close(self) -> None:
        """Sends what is buffered; gives up if a device blocks, or nobody reads for `UNREAD_TIMEOUT_S`."""
        self.at_close()
        self._closing.set()
        give_up = monotonic() + UNREAD_TIMEOUT_S
        self._thread.join(CLOSE_TIMEOUT_S)
        while self._thread.is_alive() and self._unread and monotonic() < give_up:
            self._thread.join(1.0)

    def _send_forever(self) -> None:
        closing = False
        while not closing:
            closing = self._closing.wait(FLUSH_INTERVAL_S)
            try:
                self._flush()
                self._report_pictures()
                self._report_memory(monotonic())
            except Exception:
                # The training thread meets the same error and reports it; this thread must live to send that.
                traceback.print_exc()

    def _flush(self) -> None:
        waiting = [self._backlog.popleft() for _ in range(len(self._backlog))]
        events: list[Event] = []
        run: list[StepRecord | Named] = []
        for item in waiting:
            if run and (isinstance(item, Event) or not _follows(run[-1], item)):
                events += self._try_to_pack(run)
                run = []
            if isinstance(item, Event):
                events.append(item)
            else:
                run.append(item)
        events += self._try_to_pack(run)
        if self._lost:
            lost, self._lost = self._lost, 0
            text = f"rank {self.rank}: {lost:,} steps were not recorded: the supervisor did not read them in time"
            events.append(Alert(kind="backlog", rank=self.rank, text=text))
        if events:
            self._write(b"".join(wire.encode(event) for event in events))

    def _report_pictures(self) -> None:
        while self._pictures and self.media is not None:
            name, step, read = self._pictures.popleft()
            # They are no part of training: a full disk, or images that are gone, leave it as it is.
            with contextlib.suppress(OSError):
                if content := read():
                    self._write(b"".join(map(wire.encode, self.media.write(name, step, content))))

    def _report_memory(self, now: float) -> None:
        """Reports the framework's memory; stops asking after an error."""
        if self.memory is None or now < self._memory_due:
            return
        read, self.memory = self.memory, None
        self._memory_due = now + MEMORY_INTERVAL_S
        self._write(b"".join(wire.encode(event) for event in read()))
        self.memory = read

    def _try_to_pack(self, run: list[StepRecord | Named]) -> list[Event]:
        try:
            named = [item for item in run if isinstance(item, Named)]
            steps = [item for item in run if not isinstance(item, Named)]
            return self._pack_named(named) if named else self._pack(steps)
        except Exception:
            # A failed device raises here too, when its losses are read: only these are lost of the backlog.
            traceback.print_exc()
            return []

    def _pack(self, run: list[StepRecord]) -> list[Event]:
        if not run:
            return []
        rows = [[loss] if isinstance(loss, float) else loss for loss in self.convert([item[1] for item in run])]
        norms = self._norms(run)
        window = self._budget.window(len(run), monotonic())
        events: list[Event] = []
        bad: list[tuple[int, int, float]] = []
        numbers, _, seconds, examples, rates, _, waited = zip(*run, strict=True)
        for rank, losses in zip(self._speaks_for, zip(*rows, strict=True), strict=True):
            columns = {LOSS: losses, LEARNING_RATE: rates, EXAMPLES: examples, STEP_TIME: seconds}
            if norms and rank == 0:
                columns[GRADIENT_NORM] = norms
            if rank == self._speaks_for[0]:
                columns[DATA_WAIT] = waited
            events.append(pack_steps(rank, numbers, columns, window, self._steps_per_epoch))
            bad += [(step, rank, loss) for step, loss in zip(numbers, losses, strict=True) if not isfinite(loss)]
        return events + self._report_non_finite(bad)

    def _pack_named(self, run: list[Named]) -> list[Event]:
        columns = {name: [float(item.values[name]) for item in run] for name in run[0].values}
        window = self._budget.window(len(run), monotonic())
        packed = pack_steps(self.rank, [item.step for item in run], columns, window, self._steps_per_epoch)
        # Converted later than a checkpoint of the same step, which the log shows after it.
        return [msgspec.structs.replace(packed, time=run[-1].time, mono=run[-1].mono)]

    def _norms(self, run: list[StepRecord]) -> tuple[float, ...]:
        if self.rank or any(item[5] is None for item in run):
            return ()
        # If each device has a copy, the first one's.
        norms = self.convert([item[5] for item in run])
        return tuple(norm if isinstance(norm, float) else norm[0] for norm in norms)

    def _report_non_finite(self, bad: list[tuple[int, int, float]]) -> list[Event]:
        """Reports the run's first non-finite loss; `bad` has step, rank and loss of those found now."""
        if self._nan_seen or not bad:
            return []
        self._nan_seen = True
        step, rank, loss = min(bad)
        text = f"rank {rank}: the loss is {loss} at step {step:,}; a lower learning rate may help"
        events: list[Event] = [Alert(kind="nan", severity="error", rank=rank, step=step, text=text)]
        if self._nan_policy != "warn":
            events.append(StopRequested(save=self._nan_policy == "checkpoint-and-stop", by="nan_policy"))
        return events

    def _write(self, data: bytes) -> None:
        # The reporter's and the control thread's lines must not mix. A supervisor that is gone is no error here: the
        # reaper ends this process.
        with self._writing, contextlib.suppress(OSError):
            self._unread = True
            view = memoryview(data)
            while view:
                view = view[os.write(self._fd, view) :]
        self._unread = False


class Span(NamedTuple):
    """What a profiler has timed once."""

    name: str
    kind: str
    """One of `tuiapp.trainers.contract.events.KINDS`; `HOST` for what no device does."""
    start: float
    end: float
    """Seconds of any clock that is the same for all spans of a device."""
    own: float
    """Seconds in which it called nothing that has a span of its own."""


class Traced(NamedTuple):
    """What a device did."""

    rank: int
    spans: Sequence[Span]
    peak_bytes: int | None = None
    process_peak_bytes: int | None = None


class Profiler(Protocol):
    def start(self, directory: Path | None) -> None:
        """Begins once the devices have done what they were given; a trace is written into `directory`, if given."""

    def stop(self) -> tuple[list[Traced], Path | None]:
        """Ends when the devices have done all; returns what those of this process did, and the trace's file."""


class Named(NamedTuple):
    step: int
    values: dict[str, Any]
    time: float
    mono: float


def _follows(before: StepRecord | Named, item: StepRecord | Named) -> bool:
    """Tells whether two records share an event: a gap after lost steps, or other names, starts a new one."""
    if isinstance(before, Named) != isinstance(item, Named) or item[0] != before[0] + 1:
        return False
    return not isinstance(item, Named) or item.values.keys() == before[1].keys()
