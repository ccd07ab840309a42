"""What the runs of a study came to, by their journals: how fast, how soon, with how much memory, how well.

A study is shown as one table, in the terminal, as CSV and Markdown, and on a report's page.
"""

from __future__ import annotations

import csv
import io
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Literal, TypeAlias

from tuiapp.trainers.contract.events import (
    AnyEvent,
    DeviceSample,
    FrameworkMemory,
    HostSample,
    Metrics,
    RankSample,
    RankStarted,
    RunStarted,
)
from tuiapp.trainers.contract.journal import JournalReader
from tuiapp.trainers.contract.metrics import DATA_WAIT, RATE, STEP_TIME, SYNC_WAIT
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.curves import ALL, Curves
from tuiapp.trainers.state.objective import Spread
from tuiapp.trainers.state.summary import RunInfo, summarise
from tuiapp.trainers.state.text import MISSING, format_percent, format_rate, plural, sanitize
from tuiapp.view.run_list import state
from tuiapp.view.table import Column, plain_table

if TYPE_CHECKING:
    from tuiapp.trainers.state.series import Series

WARM = 0.1
"""Share of the steps at the beginning that do not count where the summary has no speed, as in `warm_after`."""

Unit: TypeAlias = Literal["examples/s", "steps/s"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    info: RunInfo
    throughput: float | None = None
    """Steady: of a built-in trainer as of `Summary.examples_per_second`, of a script over the steps after the first
    tenth."""
    unit: Unit = "examples/s"
    """A script that does not report its examples has steps per second."""
    first_step_s: float | None = None
    """From the supervisor's start to the end of the first step."""
    waiting: float | None = None
    """Share of its steps in which ranks waited for each other, see `SYNC_WAIT`."""
    data_wait: float | None = None
    """Share of its steps in which it waited for data."""
    memory_bytes: int | None = None
    """The most at once: on GPUs what the framework or else the driver counts of all of them, on the CPU the resident
    memory of all ranks, in which pages that they share count for each."""
    foreign_load: float | None = None
    """Share of the machine's processors that other programs had meanwhile, 0 to 1: they make figures smaller."""
    curves: Curves = field(default_factory=lambda: Curves(by_rank=False))
    """Means over the ranks."""

    @property
    def devices(self) -> int:
        return self.info.config.devices if self.info.config else 0

    @property
    def backend(self) -> str:
        return self.info.config.backend if self.info.config else ""

    @property
    def is_whole(self) -> bool:
        """Whether its figures count: those of runs that failed or were stopped do not."""
        return self.info.status == "completed"


def measure(run: RunDir) -> Measured:
    """Reads a run's journal, of one that has not completed only its ends."""
    info = summarise(run)
    if info.status != "completed":
        return Measured(info=info)
    meter = _Meter()
    for event in JournalReader(run.journal).rest():
        meter.add(event)
    curves = meter.curves
    throughput, unit = _throughput(info, curves)
    return Measured(
        info=info,
        throughput=throughput,
        unit=unit,
        first_step_s=meter.first_step_s,
        waiting=_share(curves, SYNC_WAIT),
        data_wait=_share(curves, DATA_WAIT),
        memory_bytes=meter.memory_bytes,
        foreign_load=meter.foreign_load,
        curves=curves,
    )


class _Meter:
    """Folds a journal into what the summary does not have."""

    def __init__(self) -> None:
        self.curves = Curves(by_rank=False)
        self.first_step_s: float | None = None
        self._started: float | None = None
        self._resident: dict[int, int] = {}
        self._framework: dict[int, int] = {}
        """Rank → its framework's peak."""
        self._used: dict[str, int] = {}
        """GPU → used by whomever: a study's runs are alone."""
        self._gpus: set[str] = set()
        self._most_resident = self._most_used = 0
        self._busy: dict[int, float] = {}
        """Rank → cores that it uses."""
        self._foreign_loads: list[float] = []

    def add(self, event: AnyEvent) -> None:
        self.curves.fold([event])
        match event:
            case RunStarted():
                self._started = event.time if self._started is None else self._started
            case RankStarted() if event.uuid:
                self._gpus.add(event.uuid)
            case Metrics() if event.is_training and self.first_step_s is None and self._started is not None:
                self.first_step_s = max(0.0, event.places()[0][1] - self._started)
            case HostSample() if event.cpu_percent_per_core and not event.node:
                of_ranks = sum(self._busy.values()) / len(event.cpu_percent_per_core)
                self._foreign_loads.append(max(0.0, event.cpu_percent / 100 - of_ranks))
            case RankSample():
                self._busy[event.rank] = (event.cpu_percent or 0.0) / 100
                self._resident[event.rank] = event.rss_bytes
                self._most_resident = max(self._most_resident, sum(self._resident.values()))
            case FrameworkMemory() if event.peak_bytes is not None:
                self._framework[event.rank] = max(self._framework.get(event.rank, 0), event.peak_bytes)
            case DeviceSample() if event.memory_used_bytes is not None and event.uuid in self._gpus:
                self._used[event.uuid] = event.memory_used_bytes
                self._most_used = max(self._most_used, sum(self._used.values()))

    @property
    def foreign_load(self) -> float | None:
        return statistics.fmean(self._foreign_loads) if self._foreign_loads else None

    @property
    def memory_bytes(self) -> int | None:
        of_gpus = sum(self._framework.values()) or self._most_used
        return (of_gpus if self._gpus else self._most_resident) or None


def _throughput(info: RunInfo, curves: Curves) -> tuple[float | None, Unit]:
    if info.summary.examples_per_second is not None:
        return info.summary.examples_per_second, "examples/s"
    if (rate := _steady(curves[ALL, RATE])) is not None:
        return rate, "examples/s"
    import numpy as np

    last = curves.timeline.steps[-1]
    ends = np.array([WARM * last, last], float)
    begun, ended = curves.timeline.seconds(ends)
    return (float((ends[1] - ends[0]) / (ended - begun)) if ended > begun else None), "steps/s"


def _share(curves: Curves, name: str) -> float | None:
    """Returns which part of a step a metric in seconds is; None if that was not reported."""
    part, step = _steady(curves[ALL, name]), _steady(curves[ALL, STEP_TIME])
    return part / step if part is not None and step else None


def _steady(series: Series) -> float | None:
    """Returns the mean of a curve after its beginning, of one that has no more than that of all of it."""
    import numpy as np

    values, steps = series.means(), series.middles()
    finite = ~np.isnan(values)
    warm = finite & (steps > series.first_step + WARM * (series.last_step - series.first_step))
    chosen = values[warm] if warm.any() else values[finite]
    return float(chosen.mean()) if len(chosen) else None


def completed(runs: Sequence[Measured]) -> list[Measured]:
    """Returns the runs whose figures count."""
    return [run for run in runs if run.is_whole]


def unit_of(runs: Sequence[Measured]) -> Unit:
    """Returns what throughput is counted in: examples if all runs that count report them."""
    return "steps/s" if any(run.unit == "steps/s" for run in completed(runs)) else "examples/s"


BUSY = 0.1
"""Least share of the processors that other programs have that is said."""
MOST_NAMED = 6
"""Most runs that are named as not counting."""


@dataclass(frozen=True, slots=True)
class Sheet:
    title: str
    heads: tuple[str, ...]
    cells: list[tuple[str, ...]]
    """The cells of each row, as they are shown."""
    facts: list[dict[str, object]]
    """The rows as plain values."""
    notes: list[str]
    """What the figures are, and what is missing."""

    def lines(self, width: int = sys.maxsize) -> list[str]:
        """Returns the table as text."""
        columns: list[Column[tuple[str, ...]]] = [
            Column(cells[0].upper(), max(map(len, cells)), itemgetter(index), index, left=index == 0)
            for index, cells in enumerate(zip(self.heads, *self.cells, strict=True))
        ]
        return plain_table(columns, self.cells, width)

    def to_csv(self) -> str:
        """Returns the plain values."""
        text = io.StringIO()
        writer = csv.DictWriter(text, list(self.facts[0]) if self.facts else ["study"], lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: "" if value is None else value for name, value in row.items()} for row in self.facts)
        return text.getvalue()

    def to_markdown(self) -> str:
        """Returns the table with its notes."""
        rows = [self.heads, ("---",) * len(self.heads), *self.cells]
        table = "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows)
        notes = "\n".join(f"- {note}" for note in self.notes)
        return f"## {self.title}\n\n{table}\n\n{notes}\n"


def rate_words(rates: Spread | None) -> str:
    """Formats a median rate."""
    return format_rate(rates.median) if rates else MISSING


def spread_words(rates: Spread | None) -> str:
    """Formats half the range over the median: "± 3.1 %"; of a single run it is not known."""
    return f"± {format_percent(rates.half, 1)}" if rates and rates.size > 1 else MISSING


def counted_words(runs: Sequence[Measured]) -> str:
    """Formats how many of some runs count: "3", "2 of 3"."""
    counted = len(completed(runs))
    return str(counted) if counted == len(runs) else f"{counted} of {len(runs)}"


def busy_notes(runs: Sequence[Measured]) -> list[str]:
    """Says how much other programs had of the processors, if that is enough to matter."""
    loads = [run.foreign_load for run in completed(runs) if run.foreign_load is not None]
    if not loads or max(loads) < BUSY:
        return []
    from_, to = format_percent(min(loads)), format_percent(max(loads))
    return [
        f"other programs had {from_} to {to} of the processors during these runs: the figures are of a busy machine"
    ]


def missing_notes(runs: Sequence[Measured]) -> list[str]:
    """Says which runs do not count, and why."""
    notes = [
        f"{run.info.directory.run_id} does not count: {state(run.info)}{run.info.reason and f', {run.info.reason}'}"
        for run in runs
        if not run.is_whole
    ]
    named = notes[:MOST_NAMED]
    return [sanitize(note, 300) for note in named] + (
        [f"{plural(len(notes) - MOST_NAMED, 'more run')} not counted"] if notes[MOST_NAMED:] else []
    )


def run_facts(run: Measured) -> dict[str, object]:
    """Returns a run's figures, ready for JSON."""
    return {
        "run": run.info.directory.run_id,
        "status": run.info.status,
        "backend": run.backend,
        "devices": run.devices,
        "throughput": run.throughput,
        "first_step_s": run.first_step_s,
        "waiting": run.waiting,
        "data_wait": run.data_wait,
        "memory_bytes": run.memory_bytes,
        "others": run.foreign_load,
        "loss": run.info.summary.loss,
        "test_accuracy": run.info.summary.test_accuracy,
    }
