"""The same training on several backends: a row for each, from the runs of a shoot-out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuiapp.trainers.contract.metrics import LOSS
from tuiapp.trainers.experiments.measured import Measured, Spread, median, spread, whole
from tuiapp.trainers.state.curves import ALL, Curves

if TYPE_CHECKING:
    from tuiapp.trainers.state.series import Series

WINDOWS = 100
"""Parts of a run over whose means two curves are compared: a fast run's journal has several steps in an entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShootoutRow:
    backend: str
    runs: tuple[Measured, ...]
    """All of them, ended or not; those that have not completed count for nothing below."""
    throughput: Spread | None
    first_step_s: Spread | None
    memory_bytes: float | None
    loss: float | None
    """Median of the last steps' losses, as the others are medians."""
    test_loss: float | None
    accuracy: float | None
    difference: float | None
    """The largest difference of its loss curve from the first backend's; None of that itself."""

    @property
    def shown(self) -> Measured:
        """The run whose curves are drawn: the first that counts."""
        return next(iter(whole(self.runs)), self.runs[0])


def shootout_rows(runs: Sequence[Measured], order: Sequence[str] = ()) -> list[ShootoutRow]:
    """Returns the rows of a shoot-out, in an order of backends; others follow."""
    backends = [name for name in dict.fromkeys([*order, *(run.backend for run in runs)]) if name]
    rows: list[ShootoutRow] = []
    first: Curves | None = None
    for backend in backends:
        own = tuple(run for run in runs if run.backend == backend)
        if not own:
            continue
        counted = whole(own)
        curves = counted[0].curves if counted else None
        rows.append(
            ShootoutRow(
                backend=backend,
                runs=own,
                throughput=spread(run.throughput for run in counted),
                first_step_s=spread(run.first_step_s for run in counted),
                memory_bytes=median(run.memory_bytes for run in counted),
                loss=median(run.info.summary.loss for run in counted),
                test_loss=median(run.info.summary.test_loss for run in counted),
                accuracy=median(run.info.summary.test_accuracy for run in counted),
                difference=curve_difference(first, curves) if first and curves else None,
            )
        )
        if len(rows) == 1:
            first = curves
    return rows


def curve_difference(one: Curves, other: Curves, name: str = LOSS) -> float | None:
    """Returns the largest difference of two curves, over the steps that both have; None without any."""
    a, b = one[ALL, name], other[ALL, name]
    if not len(a) or not len(b):
        return None
    start, stop = max(a.first_step, b.first_step), min(a.last_step, b.last_step)
    if start > stop:
        return None
    return _largest(a, b, start, stop)


def _largest(a: Series, b: Series, start: int, stop: int) -> float | None:
    import numpy as np

    windows = min(WINDOWS, stop - start + 1)
    apart = np.abs(a.reduce(windows, start, stop).mean - b.reduce(windows, start, stop).mean)
    known = apart[~np.isnan(apart)]
    return float(known.max()) if len(known) else None
