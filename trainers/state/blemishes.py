"""What mars a run that may have completed all the same: a loss that is NaN or diverged, a checkpoint that is missing.

A run's verdict is its status and its blemishes. The supervisor works them out once, from the events on their way to the
journal; they are part of the run's summary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import isfinite

from tuiapp.trainers.contract.events import Alert, Blemish, Event, Metrics, Summary
from tuiapp.trainers.contract.metrics import is_loss, loss_of
from tuiapp.trainers.contract.sidecars import About
from tuiapp.trainers.state.text import format_duration, plural

WINDOW = 0.02
"""Part of a run's steps whose median loss is compared."""
LEAST_WINDOW = 5
"""Values at least. In a run of so few they must all be high: the losses of its batches differ by more than `TIMES`."""
TIMES = 3.0
"""A loss has diverged whose last median is so many times the least one, and above that with which the run began."""
LEAST_VALUES = 20
"""Fewest values of a loss of which it is said that it diverged."""
MOST_VALUES = 4096
"""Most values of a curve; beyond it every second one is dropped."""
MOST_LOSSES = 16

KINDS = {
    "hang": "hang", "checkpoint": "checkpoint", "export": "export", "replicas": "replicas", "backlog": "values",
    "metric": "values",
}  # fmt: skip
"""Kind of an alert that is no mere information → kind of blemish."""
SEVERAL = {"checkpoint": "checkpoints were not saved", "values": "times values were not recorded"}


def median(values: Sequence[float]) -> float:
    """Returns the median of one value or more. A user's folder may have a `statistics.py` of its own."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


@dataclass(slots=True)
class BlemishMeter:
    """Finds the blemishes of an attempt that goes on after step `resumed_from`; `before` has those of earlier ones.

    `begun_with` has what the losses of the first attempt began with.

    As long as that step is not known, it is None, and all of those count.
    """

    before: list[Blemish] = field(default_factory=list)
    resumed_from: int | None = 0
    begun_with: dict[str, float] = field(default_factory=dict)
    _losses: dict[str, _Curve] = field(default_factory=dict)
    _told: set[int] = field(default_factory=set)
    """Steps at which an alert has named a value that is not finite."""
    _reported_at: float | None = None
    _hung_since: float | None = None
    _hung_s: float = 0.0
    _joined: int = 0
    """Rows of a script that share entries."""
    _joined_from: int = 0
    _alerts: dict[str, tuple[Alert, int]] = field(default_factory=dict)
    """Kind of blemish → the first alert of it, and how many there were."""

    def add(self, event: Event) -> None:
        if isinstance(event, Metrics):
            self._add_metrics(event)
        elif isinstance(event, Alert):
            self._add_alert(event)

    def _add_metrics(self, event: Metrics) -> None:
        if event.is_training:
            self._reported_at = event.time
        for name, column in event.values.items():
            if is_loss(name) and (name in self._losses or len(self._losses) < MOST_LOSSES):
                self._losses.setdefault(name, _Curve(event.rank)).add(event, column)
        if event.rows:
            self._joined_from = self._joined_from if self._joined else event.first_step
            self._joined += sum(rows for rows in event.rows if rows > 1)

    def _add_alert(self, alert: Alert) -> None:
        if alert.kind == "hang":
            if alert.ended:
                self._hung_s += alert.time - (self._hung_since or alert.time)
                self._hung_since = None
                return
            self._hung_since = self._hung_since or self._reported_at or alert.time
        if alert.kind == "nan" and alert.step is not None and len(self._told) < MOST_VALUES:
            self._told.add(alert.step)
        # How an attempt began is a warning that is no blemish.
        least = ("error",) if alert.kind == "checkpoint" else ("error", "warning")
        if (kind := KINDS.get(alert.kind)) and alert.severity in least:
            first, count = self._alerts.get(kind, (alert, 0))
            self._alerts[kind] = first, count + 1

    @property
    def starts(self) -> dict[str, float]:
        """What a further attempt is to know of what the losses began with."""
        starts = {name: start for name, curve in self._losses.items() if (start := curve.start) is not None}
        return starts | self.begun_with

    def blemishes(self, steps: int, now: float) -> list[Blemish]:
        """Returns those known so far, of a run that has come to so many steps; `now` in seconds since the epoch."""
        begin = self.resumed_from
        # An attempt that goes on from an earlier step exports anew.
        blemishes = [
            blemish
            for blemish in self.before
            if begin is None or (blemish.kind != "export" and (blemish.since_step or 0) <= begin)
        ]
        if curve := self._losses.get(name := loss_of(self._losses)):
            blemishes += [*curve.not_finite(steps, self._told)] or curve.diverged(self.begun_with.get(name))
        for kind, (first, count) in self._alerts.items():
            text = first.text
            if kind == "hang":
                lasted = self._hung_s + (now - self._hung_since if self._hung_since else 0.0)
                text = f"no progress for {format_duration(lasted)}"
            elif count > 1 and kind in SEVERAL:
                text = f"{count:,} {SEVERAL[kind]}, the first: {text}"
            blemishes.append(Blemish(kind=kind, since_step=first.step, text=text))
        if self._joined:
            text = f"{plural(self._joined, 'row')} of metrics were joined with neighbours"
            blemishes.append(Blemish(kind="joined", since_step=self._joined_from, text=text))
        # Of a kind that an earlier attempt had, too, the present one's.
        return list({blemish.kind: blemish for blemish in blemishes}.values())


def unaccepted(summary: Summary, about: About) -> list[Blemish]:
    """Returns the blemishes that the user has not accepted."""
    return [blemish for blemish in summary.blemishes if blemish.kind not in about.accepted]


def _are_finite(values: Sequence[float | None]) -> bool:
    """Whether all values are finite, as most are: their sum tells that at once; False if one may not be."""
    try:
        return isfinite(sum(values))  # type: ignore[arg-type]
    except TypeError:
        return False


@dataclass(slots=True)
class _Curve:
    """A metric that may be the training loss: where it is not finite on any rank, and its values on the first rank."""

    rank: int
    _steps: list[int] = field(default_factory=list)
    _values: list[float] = field(default_factory=list)
    _every: int = 1
    _left: int = 0
    _ends_bad: dict[int, bool] = field(default_factory=dict)
    _bad_from: int | None = None
    _bad_first: int = 0
    """The first step of the entry that ends with `_bad_from`: a fast script's neighbours are joined."""
    _bad_steps: set[int] = field(default_factory=set)
    _word: str = ""

    def add(self, event: Metrics, values: Sequence[float | None]) -> None:
        column = values
        if not _are_finite(values):
            column = [None if value is None or not isfinite(value) else value for value in values]
        if None in column:
            counts = event.counts or [1] * len(column)
            entries = zip(event.places(), counts, column, strict=False)
            bad = {step: count for (step, _), count, value in entries if value is None}
            if self._bad_from is None or min(bad) < self._bad_from:
                self._bad_from = min(bad)
                first = values[column.index(None)]
                self._word = "NaN" if first is None else str(first)
                self._bad_first = self._bad_from - bad[self._bad_from] + 1
            if len(self._bad_steps) < MOST_VALUES:
                self._bad_steps.update(bad)
        self._ends_bad[event.rank] = column[-1] is None
        if event.rank != self.rank:
            return
        for (step, _), value in zip(event.places(), column, strict=False):
            if value is None:
                continue
            if self._left:
                self._left -= 1
                continue
            self._left = self._every - 1
            self._steps.append(step)
            self._values.append(value)
            if len(self._values) >= MOST_VALUES:
                del self._steps[1::2], self._values[1::2]
                self._every *= 2

    def not_finite(self, steps: int, alerted: Iterable[int]) -> Iterable[Blemish]:
        """Says from which step on it is not finite; `alerted` are the steps that alerts have named."""
        if self._bad_from is None:
            return
        since = min((step for step in alerted if self._bad_first <= step <= self._bad_from), default=self._bad_from)
        where = f"from step {since:,} of {steps:,} on"
        if not any(self._ends_bad.values()):
            where = f"at {plural(len(self._bad_steps), 'step')} of {steps:,}, the first {since:,}"
        yield Blemish(kind="nan", since_step=since, text=f"{self._word} in the training loss {where}")

    @property
    def start(self) -> float | None:
        """What it began with: the median of the first values, the first one if there are few."""
        return median(self._values[: max(1, int(WINDOW * len(self._values)))]) if self._values else None

    def diverged(self, start: float | None) -> Iterable[Blemish]:
        """Says from which step on it is far above its best; an earlier attempt has begun with `start`."""
        if self.start is None or len(self._values) < LEAST_VALUES:
            return
        size = max(LEAST_WINDOW, int(WINDOW * len(self._values)))
        medians = [median(self._values[begin : begin + size]) for begin in range(0, len(self._values), size)]
        # The last one may be of fewer.
        tail, least = self._values[-size:], min(*medians[:-1], self.start)
        last = median(tail) if size > LEAST_WINDOW else min(tail)
        if not (0 < TIMES * least < last and last > (self.start if start is None else start)):
            return
        below = max((n for n, value in enumerate(medians[:-1], start=1) if value <= TIMES * least), default=0)
        above = (n for n in range(below * size, len(self._values)) if self._values[n] > TIMES * least)
        since = self._steps[next(above, -1)]
        text = f"the training loss diverged: {median(tail):.4g} at the end, {least:.4g} at its best"
        yield Blemish(kind="diverged", since_step=since, text=text)
