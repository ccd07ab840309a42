"""Where the time of some steps goes: a framework's profiler, from one step to a later one, when somebody asks for it.

All ranks profile the same steps, as they have agreed on the first. Each writes a trace for Perfetto into the run's
directory, and reports its sums.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from time import perf_counter

import numpy as np
import numpy.typing as npt

from tuiapp.trainers.config.files import make_private
from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.contract.events import COMMUNICATION, COPIES, DATA, HOST, KERNELS, Alert, Operation, Profile
from tuiapp.trainers.rank.reporter import Reporter, Span

LARGEST = 10
"""Number of operations that are reported."""
NAME_CHARACTERS = 160
TRACED_RANKS = 8
"""Number of a run's processes that write a trace: each is some megabytes."""


class Tracing:
    """Profiles steps on request; `finish` after the last step of an epoch, before anything else is done."""

    def __init__(self, plan: Plan, report: Reporter) -> None:
        self._plan, self._report = plan, report
        self._wanted = 0
        self._first = self._end = 0
        """The steps from `_first` on and before `_end` are profiled; 0 if none."""
        self._since = self._waited_s = 0.0

    def due(self, step: int) -> bool:
        """Tells whether `change` is to be called before a step, once the steps before it are computed."""
        self._wanted = self._report.profile_before(step) or self._wanted
        return step == self._end if self._end else bool(self._wanted) and self._has_room(step)

    def _has_room(self, step: int) -> bool:
        """Tells whether the epoch has as many steps; if not, the next one, of which all are taken if need be."""
        plan = self._plan
        left = self._left(step)
        return left >= min(self._wanted, plan.steps_per_epoch) or step + left > plan.total_steps

    def _left(self, step: int) -> int:
        """Steps of the epoch from this one on."""
        return min(
            -(step - 1) % self._plan.steps_per_epoch or self._plan.steps_per_epoch, self._plan.total_steps - step + 1
        )

    def change(self, step: int) -> None:
        """Ends profiling before this step, or begins it; what fails there is reported, and training continues."""
        self.finish(step - 1)
        if not self._wanted or not self._has_room(step):
            return
        wanted, self._wanted = self._wanted, 0
        report = self._report
        if report.profiler is None or report.profiles is None:
            self._tell(f"{self._plan.config.backend} has no profiler: no step was traced", step)
            return
        report.phase("profiling")
        directory = report.profiles / f"step-{step}" if report.rank < TRACED_RANKS else None
        try:
            if directory is not None:
                make_private(directory)
            report.profiler.start(directory)
        except Exception as error:
            self._tell(f"the profiler did not start: {type(error).__name__}: {error}", step)
        else:
            self._first, self._end = step, step + min(wanted, self._left(step))
        report.phase("training")
        self._since, self._waited_s = perf_counter(), 0.0

    def _tell(self, text: str, step: int) -> None:
        self._report.send(Alert(kind="profile", rank=self._report.rank, step=step, text=text))

    def give_up(self, last: int) -> None:
        """Says that no step was traced where some were to be and the run ends after its `last`."""
        if wanted := self._report.profile_before(last + 1) or self._wanted:
            steps = f"{wanted:,} steps" if wanted > 1 else "1 step"
            text = f"{steps} were to be profiled, and none was: the run ended after step {last:,}"
            self._report.send_from_rank0(Alert(kind="profile", rank=self._report.rank, step=last, text=text))

    def waited(self, seconds: float) -> None:
        """Adds to the time in which the process waited for a batch."""
        self._waited_s += seconds

    def finish(self, last: int) -> None:
        """Ends profiling, if there is any, after a step that is computed, and reports it."""
        report, seconds = self._report, perf_counter() - self._since
        first, self._first, self._end = self._first, 0, 0
        if not first or report.profiler is None or report.profiles is None:
            return
        report.phase("profiling")
        try:
            traced, path = report.profiler.stop()
        except Exception as error:
            self._tell(f"the profiler failed: {type(error).__name__}: {error}", last)
            traced, path = [], None
        for device in traced:
            report.send(
                Profile(
                    rank=device.rank,
                    step=first,
                    steps=last - first + 1,
                    seconds=seconds,
                    spent=spent(device.spans, seconds, self._waited_s),
                    largest=largest(device.spans),
                    peak_bytes=device.peak_bytes,
                    process_peak_bytes=device.process_peak_bytes,
                    step_memory=report.step_memory,
                    trace=str(path.relative_to(report.profiles.parent)) if path else "",
                )
            )
        report.phase("training")


def spent(spans: Sequence[Span], seconds: float, waited_s: float) -> dict[str, float]:
    """Divides `seconds` by what a device did in them: `KINDS` → seconds; of what overlaps the first kind counts.

    For `waited_s` of them the process waited for data: that is no more than the device's idle time.
    """
    by_kind: dict[str, float] = {}
    covered, before = 0.0, []
    for kind in (KERNELS, COMMUNICATION, COPIES):
        before += [(span.start, span.end) for span in spans if span.kind == kind]
        now = min(seconds, _length(before))
        by_kind[kind], covered = now - covered, now
    by_kind[DATA] = min(waited_s, seconds - covered)
    by_kind[HOST] = seconds - covered - by_kind[DATA]
    return by_kind


def _length(spans: Iterable[tuple[float, float]]) -> float:
    """Seconds that are in any of these spans."""
    table: npt.NDArray[np.float64] = np.array(sorted(spans), np.float64).reshape(-1, 2)
    reached = np.maximum.accumulate(np.concatenate([table[:1, 0], table[:, 1]]))
    return float(np.sum(np.maximum(0.0, table[:, 1] - np.maximum(table[:, 0], reached[:-1]))))


def largest(spans: Iterable[Span]) -> list[Operation]:
    """Returns the `LARGEST` names that took the most seconds of their own."""
    seconds: dict[str, float] = defaultdict(float)
    calls: dict[str, int] = defaultdict(int)
    for span in spans:
        seconds[span.name] += span.own
        calls[span.name] += 1
    names = sorted(seconds, key=lambda name: (-seconds[name], name))[:LARGEST]
    return [Operation(name[:NAME_CHARACTERS], seconds[name], calls[name]) for name in names]
