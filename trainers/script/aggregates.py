"""What `define_metric` makes a metric's value in the summary of: the greatest, the last, the mean of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from math import isnan

HOW = ("min", "max", "mean", "last", "first", "best", "copy", "none")


class Aggregates:
    """Takes all values of the metrics that are defined, in their order; NaN counts for none but the last."""

    def __init__(self) -> None:
        self._defined: dict[str, list[str]] = {}
        """A metric's name, or a pattern of names → how."""
        self._values: dict[tuple[str, str], tuple[float, int]] = {}
        """(Metric, aggregate) → its value, and how many values that is of."""
        self._before: dict[str, float] = {}
        """What they had come to in an earlier part of the run."""
        self._changed: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self._defined)

    def define(self, name: str, summary: str, goal: str = "") -> None:
        """Raises ValueError for a summary that is none of `HOW`, or several of them, separated by commas."""
        ways = [way.strip() for way in summary.split(",") if way.strip()]
        if unknown := [way for way in ways if way not in HOW]:
            raise ValueError(f"summary={unknown[0]!r} is none of {', '.join(HOW)}")
        best = "max" if goal.startswith("max") else "min"
        self._defined[name] = [{"best": best, "copy": "last"}.get(way, way) for way in ways]

    def restore(self, summary: Mapping[str, object]) -> None:
        """Goes on from the summary of an earlier part of the run; means begin anew."""
        self._before = {
            name: float(value)
            for name, value in summary.items()
            if isinstance(value, int | float) or value in ("nan", "inf", "-inf")
        }

    def add(self, name: str, values: Sequence[float]) -> None:
        """Takes values of a metric; those that are not defined are passed over."""
        for how, known_as in self._ways(name):
            begin = (self._before[known_as], 1) if known_as in self._before and how != "mean" else (0.0, 0)
            before, count = self._values.get((known_as, how), begin)
            for value in values:
                if isnan(value) and how != "last":
                    continue
                if not count or how == "last":
                    before = value
                elif how == "mean":
                    before += (value - before) / (count + 1)
                elif how in ("min", "max"):
                    before = min(before, value) if how == "min" else max(before, value)
                count += 1
            if count:
                self._values[known_as, how] = before, count
                self._changed[known_as] = before

    def take(self) -> dict[str, float]:
        """What of the summary has changed since the last time."""
        changed, self._changed = self._changed, {}
        return changed

    def _ways(self, name: str) -> list[tuple[str, str]]:
        """How a metric is summed up, and as what; its own definition goes before patterns, the last pattern first."""
        patterns = [pattern for pattern in reversed(self._defined) if "*" in pattern and fnmatchcase(name, pattern)]
        for known_as in [name, *patterns]:
            if known_as in self._defined:
                ways = [way for way in self._defined[known_as] if way != "none"]
                return [(way, name if len(ways) == 1 else f"{name}/{way}") for way in ways]
        return []
