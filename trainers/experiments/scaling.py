"""How a training gets faster with more devices: a row for each number of them, from the runs of a scaling study.

Speed-up is throughput over that with the fewest devices; linear would be as many times as there are devices more.
Throughput counts examples, so that this holds whether the global batch stays (strong scaling) or grows with the devices
(weak scaling). Source: Amdahl 1967 and Gustafson 1988, as any text on parallel computing has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuiapp.trainers.experiments.measured import Measured, Spread, Unit, median, spread, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRow:
    devices: int
    runs: tuple[Measured, ...]
    """All of them, ended or not; those that have not completed count for nothing below."""
    ideal: float
    """Speed-up if it were linear."""
    throughput: Spread | None
    speedup: Spread | None
    waiting: float | None
    """Median share of a step in which ranks waited for each other."""
    data_wait: float | None
    memory_bytes: float | None
    """Median."""

    @property
    def efficiency(self) -> float | None:
        """Speed-up over the ideal one."""
        return self.speedup.median / self.ideal if self.speedup else None

    @property
    def counted(self) -> int:
        return len(whole(self.runs))

    @property
    def shown(self) -> Measured:
        """The run whose curves stand for all: of those that count one of median throughput."""
        counted = sorted(whole(self.runs), key=lambda run: run.throughput or 0.0)
        return counted[len(counted) // 2] if counted else self.runs[0]

    @property
    def batch(self) -> int | None:
        """Examples of a step over all devices; None of a script, which knows alone."""
        config = self.runs[0].info.config
        return config.global_batch_size if config and config.backend != "script" else None


def scaling_rows(runs: Sequence[Measured], *, weak: bool = False) -> list[ScalingRow]:
    """Returns the rows of a study, by number of devices.

    With `weak` a step of a script that reports no examples is taken to do as much more work as it has more devices.
    """
    counts = sorted({run.devices for run in runs if run.devices})
    steps = unit_of(runs) == "steps/s"
    rows: list[ScalingRow] = []
    base: float | None = None
    for devices in counts:
        own = tuple(run for run in runs if run.devices == devices)
        ideal = devices / counts[0]
        work = ideal if weak and steps else 1.0
        throughput = spread(run.throughput for run in whole(own))
        if devices == counts[0] and throughput:
            base = throughput.median
        speedup = throughput.times(work / base) if throughput and base else None
        rows.append(
            ScalingRow(
                devices=devices,
                runs=own,
                ideal=ideal,
                throughput=throughput,
                speedup=speedup,
                waiting=median(run.waiting for run in whole(own)),
                data_wait=median(run.data_wait for run in whole(own)),
                memory_bytes=median(run.memory_bytes for run in whole(own)),
            )
        )
    return rows


def unit_of(runs: Sequence[Measured]) -> Unit:
    """Returns what throughput is counted in: examples if all runs that count report them."""
    return "steps/s" if any(run.unit == "steps/s" for run in whole(runs)) else "examples/s"
