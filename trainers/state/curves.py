"""The curves of a run by rank and metric, and the time of each step: of the supervisor, and of every view.

NumPy is imported with the first curve that is read, or is full: the supervisor starts without it.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from tuiapp.trainers.config.datasets import labels_of
from tuiapp.trainers.config.mesh import EQUAL
from tuiapp.trainers.contract.evaluations import Evaluated
from tuiapp.trainers.contract.events import AnyEvent, Metrics, Purged, RunEnded, RunStarted
from tuiapp.trainers.contract.metrics import (
    EPOCH,
    EXAMPLES,
    HELD_OUT,
    LOSS,
    MAX_RANKS,
    MAX_STEP,
    RATE,
    STEP_TIME,
    TEST_ACCURACY,
    TEST_LOSS,
    evaluation_of,
    group_of,
    loss_of,
)
from tuiapp.trainers.state.epochs import MAX_EPOCHS, Epoch, Epochs
from tuiapp.trainers.state.history import Attempts, Gaps, StepZero
from tuiapp.trainers.state.known_metrics import KNOWN
from tuiapp.trainers.state.pending_values import NAN, Queue, bounds_of
from tuiapp.trainers.state.timeline import Earlier, Timeline, timed, warm_after

if TYPE_CHECKING:
    from tuiapp.trainers.state.reported_epochs import ReportedEpochs
    from tuiapp.trainers.state.series import Floats, Series, Stored

    StoredCurves: TypeAlias = tuple[
        int, int, float, float, dict[str, Stored], list[str], dict[str, tuple[int, float, Stored] | None] | None
    ]

Names: TypeAlias = tuple[str, ...]
Axis: TypeAlias = str  # "step", "time", "epoch", "examples", "tokens", or a metric that never falls

MOST_AXES = 256  # metrics that are looked at whether they never fall

ALL = -1  # all ranks together, in place of a rank's number
BUCKETS = 4096  # per curve of one of the first ranks
CLOSE_RANKS, CLOSE_GPUS = 4, 16  # are read closest: the later another one is, the fewer buckets its curves have
LEAST_BUCKETS = 128  # per curve of a later rank: a chart of hundreds has as many points
MEAN_BUCKETS = 2048  # per curve of all ranks together: more than any terminal has dots across
ALL_BUCKETS = 1 << 21  # of all curves together, at 56 bytes each, as long as no curve has the least
SAMPLE_BUCKETS = 1024  # per curve of samples of one of the first GPUs
VALUES_PER_BUCKET = 16  # queued per rank before they are added: in bulk they cost little
VALUES_PER_NAME = 512  # the same, with many metrics
WAITING_SAMPLES = 128

MAX_CURVES = 16_384  # of all ranks and metrics: what memory allows, at the least buckets


@dataclass(eq=False, slots=True, kw_only=True)
class Curves:
    """A run's curves, in bounded memory however long the run; no event makes it raise.

    Args:
        by_rank: Whether each rank has its own curves. Otherwise a bucket joins the values of all ranks at its steps:
            its mean is the mean over the ranks, in whatever order they report; the rate is that of all ranks.
        closest: Most buckets of a curve; with many curves it is halved.
        most: Buckets of all curves together, as far as each has the least.
    """

    by_rank: bool = True
    closest: int = BUCKETS
    most: int = ALL_BUCKETS
    names: dict[str, None] = field(default_factory=dict)  # metrics in the order of their first report
    full: bool = False  # metrics were left out for which there was no curve
    attempts: Attempts = field(default_factory=Attempts)
    timeline: Timeline = field(default_factory=Timeline)
    gaps: Gaps = field(default_factory=Gaps)  # steps missing from the journal
    epochs: Epochs = field(default_factory=Epochs)
    earlier: Earlier = field(default_factory=Earlier)  # what earlier attempts count for
    steps_per_epoch: int = 0  # 0 when not known
    zero: StepZero = field(default_factory=StepZero)
    evaluated: int = 0  # last step of an evaluation; 0 for none
    utilization: dict[str, SampledCurve] = field(default_factory=dict)  # of each GPU, by the step that was reached
    # Metric whose first step others had passed, as one that counts epochs -> the second of the run of each report.
    behind: dict[str, SampledCurve] = field(default_factory=dict)
    _count: int = 0  # curves, …
    _promised: int = 0  # … and the buckets that they may come to have
    _ranks: dict[int, RankCurves] = field(default_factory=dict)
    _scale: float = 1.0
    _share: float = 0.0
    _warm_after: int = 0

    def __post_init__(self) -> None:
        self.closest = self.closest if self.by_rank else MEAN_BUCKETS

    @property
    def resuming(self) -> bool:
        """Whether it is not known yet from which step the attempt resumes: a script's first metrics show it."""
        return self.attempts.resuming

    def begin(self, event: RunStarted) -> int | None:
        """Begins an attempt; returns the step from which it resumes, None while that is not known."""
        self.steps_per_epoch = event.steps_per_epoch if 0 < event.steps_per_epoch < MAX_STEP else 0
        before = self.attempts.present
        step = self.attempts.add(event)
        if self.attempts.present is before:
            return None
        if not self.by_rank:
            self._scale, self._share = _joins(event)
        self.timeline.begin(event.time, None)
        for rank in [rank for rank in self._ranks if rank >= event.world_size]:
            gone = self._ranks.pop(rank)
            self._count -= len(gone.names)
            self._promised -= gone.capacity * len(gone.names)
        for curves in self._ranks.values():
            curves.rescale(self._scale, self._share)
            if step is None:
                curves.begin()
            else:
                curves.truncate(step + 1)
        if step is not None:
            self._go_back(step)
        else:
            self._note_earlier()
        return step

    def end(self, event: RunEnded) -> None:
        if not self.resuming:
            self.timeline.note(event.time)

    def _go_back(self, step: int) -> None:
        """Drops what earlier attempts did after the step that this one resumes from."""
        begun = self.attempts.present
        assert begun is not None
        self.timeline.begin(begun.time, step)
        for sampled in (*self.utilization.values(), *self.behind.values()):
            sampled.truncate(step + 1)
        self.evaluated = min(self.evaluated, step)
        self.epochs.begin(begun, step)
        self.gaps.begin(step, begun.world_size, by_metrics=begun.resumed_from is None)
        self._warm_after = warm_after(step, begun.total_steps, begun.steps_per_epoch)
        self._note_earlier()

    def _note_earlier(self) -> None:
        """Notes what earlier attempts count for, once what does not count is dropped."""
        timeline = self.timeline
        if self.attempts.present is not None and self.attempts.present.attempt > 1:
            bounds = [self.first(name).bounds for name in (TEST_LOSS, TEST_ACCURACY)]
            least, greatest = (bound and bound[which] for which, bound in enumerate(bounds))
            best = Evaluated(least, greatest)
            self.earlier = Earlier(timeline.base, round(timeline.timed[-1]), timeline.busy[-1], best)

    def add(self, event: Metrics) -> int | None:
        """Adds values; returns the step from which the attempt resumes, if they show it."""
        if (resumed := self.attempts.add(event)) is not None:
            self._go_back(resumed)
        self.gaps.add(event)
        self.epochs.add(event)
        self.zero.add(event)
        curves, last_step = self._of(event.rank), event.last_step
        if event.values.keys() <= curves.names:
            curves.add(event)
        else:
            new = event.values.keys() - self.names.keys() if last_step < self.timeline.steps[-1] else ()
            if (admitted := self._admit(event, curves)) is not None:
                curves.add(admitted)
                self.behind |= {name: SampledCurve() for name in new if name in self.names}
        for name in self.behind.keys() & event.values.keys() if self.behind else ():
            self.behind[name].add_again(last_step, self.timeline.second(event.time))
        if not self.resuming:
            leads = event.rank == 0 and STEP_TIME in event.values
            self.timeline.add(event.time, last_step, *(timed(event, self._warm_after) if leads else ()))
        if TEST_LOSS in event.values or TEST_ACCURACY in event.values:
            self.evaluated = max(self.evaluated, last_step)
        return resumed

    def purge(self, event: Purged) -> None:
        if (curves := self._ranks.get(event.rank if self.by_rank else ALL)) is not None:
            for name in event.names:
                curves.purge(name, event.step)

    def add_sample(self, uuid: str, step: int, utilization: float) -> None:
        """Adds a GPU's utilization, in percent, at the step that the run has reached."""
        if not self.resuming:
            if uuid not in self.utilization:
                self.utilization[uuid] = SampledCurve(len(self.utilization))
            self.utilization[uuid].append(step, utilization)

    def fold(self, events: Iterable[AnyEvent]) -> None:
        for event in events:
            if isinstance(event, Metrics):
                self.add(event)
            elif isinstance(event, RunStarted):
                self.begin(event)
            elif isinstance(event, RunEnded):
                self.end(event)
            elif isinstance(event, Purged):
                self.purge(event)

    def extend(self, closest: int, most: int) -> None:
        """Lets its curves have more buckets from now on."""
        self.closest, self.most = closest, most
        self._share_out()

    def joined(self, most: int = ALL_BUCKETS) -> Curves:
        """Returns the curves of all ranks together, of those that each has by itself."""
        scale, share = _joins(self.attempts.present) if self.attempts.present else (1.0, 0.0)
        joined = dataclasses.replace(
            self,
            by_rank=False,
            most=most,
            names=dict(self.names),
            _count=0,
            _promised=0,
            _ranks={},
            _scale=scale,
            _share=share,
        )
        all_ranks = joined._of(ALL)
        sizes = {rank: self[rank, EXAMPLES].mean for rank in self.ranks(EXAMPLES)}
        equal = sum(sizes.values()) / max(1, len(sizes))
        weights = {rank: size / equal for rank, size in sizes.items()} if joined._share and equal else {}
        for rank, name, series in self:
            if len(series) and joined._knows(all_ranks, name):
                all_ranks.merge(name, series, weights.get(rank, 1.0))
        return joined

    def __getitem__(self, key: tuple[int, str]) -> Series:
        rank, name = key
        return self._ranks[rank][name] if rank in self._ranks else _new_series(1)

    def __iter__(self) -> Iterator[tuple[int, str, Series]]:
        """Yields the rank, the metric and the values of each curve."""
        for rank, curves in self._ranks.items():
            for name, series in curves.items():
                yield rank, name, series

    def ranks(self, name: str) -> list[int]:
        return sorted(rank for rank, curves in self._ranks.items() if name in curves)

    def last(self, rank: int, name: str) -> float | None:
        """Returns the last value of a rank's metric."""
        return self._ranks[rank].last(name) if rank in self._ranks else None

    def first(self, name: str) -> Series:
        return self[next((rank for rank in sorted(self._ranks) if name in self._ranks[rank]), ALL), name]

    def axes(self) -> list[Axis]:
        """Returns what its curves can be drawn by."""
        epoch = ["epoch"] if self.steps_per_epoch or EPOCH in self.names else []
        further = [
            name
            for name in islice(self.names, MOST_AXES)
            if name not in KNOWN and name != EPOCH and group_of(name) not in HELD_OUT
        ]
        return ["step", "time", *epoch, *self._per_step(), *(name for name in further if self.first(name).never_falls)]

    def _per_step(self) -> dict[str, int]:
        """Returns how many examples, and tokens of a text, a step of a built-in trainer takes; nothing of a script."""
        config = self.attempts.present.config if self.attempts.present else {}
        batch = config.get("global_batch_size")
        if not self.steps_per_epoch or not isinstance(batch, int):
            return {}
        count, called = labels_of(config)
        return {"examples": batch} | ({called: batch * count} if called else {})

    def places(self, steps: Floats, axis: Axis, name: str = "") -> Floats:
        """Maps steps, of the metric `name` if given, to an axis: seconds, epochs, a metric's values, or the steps."""
        if axis in self.names and axis not in KNOWN and axis != EPOCH:
            return self.first(axis).at(steps)
        if per_step := self._per_step().get(axis):
            return steps * per_step
        if axis == "time":
            return self.behind[name].series.at(steps) if name in self.behind else self.timeline.seconds(steps)
        if axis == "epoch":
            reported = self.reported_epochs
            return reported.places(steps) if reported else steps / (self.steps_per_epoch or NAN)
        return steps if axis == "step" else steps * NAN

    @property
    def reported_epochs(self) -> ReportedEpochs | None:
        """Returns the epochs of a script that reports its epoch; None of other runs."""
        if self.steps_per_epoch or EPOCH not in self.names:
            return None
        from tuiapp.trainers.state.reported_epochs import ReportedEpochs  # needs NumPy

        return ReportedEpochs(self.first(EPOCH))

    def last_epochs(self, most: int = MAX_EPOCHS) -> Sequence[Epoch]:
        """Returns what the last epochs came to, ascending; none if it is not known how long one is."""
        if (reported := self.reported_epochs) is None:
            return self.epochs.rows[-most:]
        loss = loss_of(self.names)
        losses = [self[rank, loss] for rank in self.ranks(loss)]
        evaluated = [self.first(name) for name in evaluation_of(self.names)[1:]]
        return reported.rows(losses, evaluated, self.timeline.seconds, most)

    def _of(self, rank: int) -> RankCurves:
        rank = rank if self.by_rank else ALL
        if rank not in self._ranks:
            self._ranks[rank] = RankCurves(rank, self._capacity(rank))
            self._ranks[rank].scale, self._ranks[rank].share = self._scale, self._share
        return self._ranks[rank]

    def _capacity(self, rank: int) -> int:
        return _share(self.closest, CLOSE_RANKS, max(0, rank))

    def _admit(self, event: Metrics, curves: RankCurves) -> Metrics | None:
        """Returns an event with those of its metrics that have a curve, or may have a new one."""
        admitted = {name: column for name, column in event.values.items() if self._knows(curves, name)}
        if EXAMPLES in admitted and STEP_TIME in admitted:
            self._knows(curves, RATE)
        if len(admitted) == len(event.values):
            return event
        return replace(event, values=admitted) if admitted else None

    def _knows(self, curves: RankCurves, name: str) -> bool:
        if name in curves.names:
            return True
        if self._count >= MAX_CURVES:
            self.full |= name not in self.names
            return False
        self.names[name] = None
        curves.names.add(name)
        self._count += 1
        self._promised += curves.capacity
        while self._promised > self.most and self.closest > LEAST_BUCKETS:
            self.closest //= 2
            self._share_out()
        return True

    def _share_out(self) -> None:
        for number, curves in self._ranks.items():
            curves.resize(self._capacity(number))
        self._promised = sum(curves.capacity * len(curves.names) for curves in self._ranks.values())


class RankCurves:
    """What one rank reported, in bounded memory.

    Events are queued and added to a curve when it is read, or to all curves when the queue is long: most curves are
    rarely read.
    """

    def __init__(self, rank: int, capacity: int) -> None:
        self.rank, self.capacity = rank, capacity
        self.names: set[str] = set()
        self._series: dict[str, Series] = {}
        self._queues: dict[tuple[Names, tuple[Names, ...]], Queue] = {}  # by names, and those with bounds
        self._values = 0  # queued, of all metrics
        self._most = VALUES_PER_BUCKET * capacity
        # Fewer with many ranks: they report in step, and adding to all curves at once would delay a key.
        self._share = 1 - rank % 8 / 16
        self.scale = 1.0  # factor of derived rates
        self.share = 0.0  # examples of an equal share of a step, if the losses of unequal ones are joined
        self._begun: dict[str, tuple[int, float, Series] | None] | None = None
        """Metric -> the only step of the attempt so far, its value, and the curve before it; None once there are more.

        None of an attempt that goes on from a step that is known.
        """

    @property
    def stored(self) -> StoredCurves:
        """What `restored` takes."""
        curves = {name: series.stored for name, series in self.items()}
        begun: dict[str, tuple[int, float, Stored] | None] | None = None
        if self._begun is not None:
            begun = {name: only and (only[0], only[1], only[2].stored) for name, only in self._begun.items()}
        return self.rank, self.capacity, self.scale, self.share, curves, [*self.names], begun

    @classmethod
    def restored(cls, stored: StoredCurves) -> RankCurves:
        """Raises ValueError if its parts do not fit each other."""
        from tuiapp.trainers.state.series import Series  # with NumPy

        rank, capacity, scale, share, curves, names, begun = stored
        rank_curves = cls(rank, capacity)
        rank_curves.scale, rank_curves.share, rank_curves.names = scale, share, set(names)
        rank_curves._series = {name: Series.restored(series) for name, series in curves.items()}
        if begun is not None:
            rank_curves._begun = {
                name: only and (only[0], only[1], Series.restored(only[2])) for name, only in begun.items()
            }
        return rank_curves

    def begin(self) -> None:
        """Begins an attempt of which each metric shows by itself from where it goes on.

        The first value of a metric rolls it back to before its step. That was late, and not where it goes on, if
        another metric then begins at a later step before this one has come any further: what was rolled back is there
        again, and the next value of the metric is its first.
        """
        self._begun = {}

    def _roll_back(self, event: Metrics) -> None:
        assert self._begun is not None
        first, last = event.first_step, event.last_step
        if not event.values.keys() <= self._begun.keys():
            self._settle()
            for name, only in list(self._begun.items()):
                if only is not None and only[0] < first:
                    step, value, series = only
                    series.add([step], [value], again=True)
                    self._series[name] = series
                    del self._begun[name]
        for name, column in event.values.items():
            if name in self._begun:
                if (before := self._begun[name]) is not None and last > before[0]:
                    self._begun[name] = None
                continue
            curve = self._of(name)
            value = NAN if column[-1] is None else column[-1]
            self._begun[name] = (last, value, curve) if first == last or len(column) == 1 else None
            self._series[name] = earlier = _new_series(self.capacity)
            earlier.merge(curve)
            earlier.truncate(first)

    def add(self, event: Metrics) -> None:
        if self._begun is not None:
            self._roll_back(event)
        names = tuple(event.values)
        key = names, tuple([_bounded(event, bounds) if bounds else () for bounds in bounds_of(event)])
        if len(self._queues) > 1 or key not in self._queues:
            self._settle_before(event, key)
        if (queue := self._queues.get(key)) is None:
            queue = self._queues[key] = Queue(*key)
        queue.add(event)
        self._values += len(event) * len(event.values)
        if self._values >= self._share * max(self._most, VALUES_PER_NAME * len(self.names)):
            self._settle()

    def _settle_before(self, event: Metrics, key: tuple[Names, tuple[Names, ...]]) -> None:
        """Adds what waits, if a step is reported once more in another queue: the last value counts."""
        for other, queue in self._queues.items():
            again = queue.last_step >= event.first_step and other != key
            if again and not event.values.keys().isdisjoint(queue.names):
                return self._settle()

    def __getitem__(self, name: str) -> Series:
        self._give(name)
        return self._series.get(name) or _new_series(1)

    def last(self, name: str) -> float | None:
        """Returns a metric's last value, without adding what is queued if that has it."""
        series, queues = self._series.get(name), [queue for queue in self._queues.values() if name in queue]
        if len(queues) == 1 and (series is None or series.last_step <= queues[0].last_step):
            value = queues[0].last(name)
            if value == value:
                return value
        return self[name].last

    def __contains__(self, name: str) -> bool:
        # Without adding what is queued, where that changes nothing.
        series = self._series.get(name)
        return (series is not None and len(series) > 0) or (name in self.names and len(self[name]) > 0)

    def items(self) -> Iterable[tuple[str, Series]]:
        self._settle()
        return self._series.items()

    def resize(self, capacity: int) -> None:
        self.capacity = capacity
        for series in self._series.values():
            series.capacity = capacity

    def rescale(self, scale: float, share: float) -> None:
        self._settle()
        self.scale, self.share = scale, share

    def truncate(self, step: int) -> None:
        self._settle()
        self._begun = None
        for series in self._series.values():
            series.truncate(step)

    def purge(self, name: str, step: int) -> None:
        """Drops a metric's values from a step on."""
        self._settle()
        if name in self._series:
            self._series[name].truncate(step)
        if (only := (self._begun or {}).get(name)) is not None:
            only[2].truncate(step)

    def merge(self, name: str, series: Series, weight: float = 1.0) -> None:
        self._settle()
        self._of(name).merge(series, self.scale if name == RATE else 1.0, weight if name == LOSS else 1.0)

    def _settle(self) -> None:
        if not self._queues:
            return
        for name in dict.fromkeys(chain.from_iterable(queue.names for queue in self._queues.values())):
            self._give(name)
        self._give(RATE)
        self._queues, self._values = {}, 0

    def _give(self, name: str) -> None:
        share = self.share if name == LOSS else 0.0
        pieces = [piece for queue in self._queues.values() if (piece := queue.take(name, share)) is not None]
        if pieces:
            # Ranks are joined at a step; and a test after training may name an epoch that nobody trains.
            again = self.rank != ALL and name != EPOCH
            self._of(name).add_pieces(pieces, self.scale, again=again)

    def _of(self, name: str) -> Series:
        if name not in self._series:
            self._series[name] = _new_series(self.capacity)
        return self._series[name]


def _joins(event: RunStarted) -> tuple[float, float]:
    """Returns what rates are multiplied with where all ranks are joined, and an equal share of a batch.

    That is how many examples of a step each rank would take of a batch that is divided unequally; 0 of any other run.
    """
    batch, ranks = event.config.get("global_batch_size"), event.world_size
    is_unequal = event.config.get("shares", EQUAL) != EQUAL
    share = batch / ranks if is_unequal and isinstance(batch, int) and batch > 0 < ranks else 0.0
    return float(min(max(1, ranks), MAX_RANKS)), share


class SampledCurve:
    """A figure of one GPU by step.

    Args:
        index: How many GPUs have a curve already.
    """

    def __init__(self, index: int = 0) -> None:
        self._capacity = _share(SAMPLE_BUCKETS, CLOSE_GPUS, index)
        self._series: Series | None = None
        self._steps, self._values = array("q"), array("d")

    @property
    def stored(self) -> Stored:
        return self.series.stored

    @classmethod
    def restored(cls, stored: Stored) -> SampledCurve:
        """Raises ValueError if its parts do not fit each other."""
        from tuiapp.trainers.state.series import Series  # with NumPy

        series = Series.restored(stored)
        curve = cls()
        curve._capacity, curve._series = series.capacity, series
        return curve

    def add_again(self, step: int, value: float) -> None:
        """Adds a value in place of those of this step and later ones."""
        if step <= (self._steps[-1] if self._steps else self._series.last_step if self._series else -1):
            self.truncate(step)
        self.append(step, value)

    def append(self, step: int, value: float) -> None:
        """Adds a value; steps never decrease except after `truncate`."""
        self._steps.append(step)
        self._values.append(value)
        if len(self._steps) >= WAITING_SAMPLES:
            self._settle()

    @property
    def series(self) -> Series:
        return self._settle()

    def truncate(self, step: int) -> None:
        self._settle().truncate(step)

    def _settle(self) -> Series:
        if self._series is None:
            self._series = _new_series(self._capacity)
        self._series.add(self._steps, self._values)
        self._steps, self._values = array("q"), array("d")
        return self._series


def _share(most: int, close: int, index: int) -> int:
    """Returns the buckets of a curve of one of many ranks or GPUs, of which the first `close` have most."""
    return max(LEAST_BUCKETS, min(most, close * most // (index + 1)))


def _bounded(event: Metrics, bounds: Mapping[str, Sequence[float | None]]) -> tuple[str, ...]:
    size, values = len(event), event.values
    return tuple([name for name, column in bounds.items() if name in values and len(column) == size])


def _new_series(capacity: int) -> Series:
    from tuiapp.trainers.state.series import Series  # with NumPy

    return Series(capacity)
