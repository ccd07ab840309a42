"""The letters and colours of marked runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from string import ascii_lowercase

from tuiapp.trainers.contract.rundir import RunDir

LETTERS = ascii_lowercase
"""Letters of runs whose curves are drawn over each other: where colours repeat, the letters differ."""

# Okabe & Ito, "Color Universal Design" (2008), ordered to keep neighbours distinct on each background.
_ON_DARK = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#0072B2", "#D55E00", "#999999")
_ON_LIGHT = ("#005F99", "#B34700", "#00735A", "#9E4A7D", "#1F87BF", "#946300", "#6E6600", "#555555")
"""These hues, darkened to a contrast of at least 3:1 on a light background."""


_HEAT = ("#440154", "#472D7B", "#3B528B", "#2C728E", "#21918C", "#28AE80", "#5EC962", "#ADDC30", "#FDE725")
"""Colours of heat maps: nine of viridis (Smith & van der Walt, 2015), which grows lighter evenly in grey, too."""


def heat_color(level: int, *, dark: bool) -> str:
    """Returns the colour of a level from 0 to 8: the greatest is furthest from the background."""
    return _HEAT[level if dark else -1 - level]


def series_color(index: int, *, dark: bool) -> str:
    """Returns the colour of a curve or of a device as "#RRGGBB"; repeats after eight."""
    colors = _ON_DARK if dark else _ON_LIGHT
    return colors[index % len(colors)]


def letter_of(index: int) -> str:
    """Returns the letter of a run at a place; of one in a band the band's sign."""
    return LETTERS[index] if 0 <= index < len(LETTERS) else "▒"


BAND = -1
"""The place of runs that are drawn as a band or, if they are unlike, as a line each of its colour."""


class Places:
    """Gives marked runs the places of their letters and colours: a run keeps its own while others come and go."""

    def __init__(self) -> None:
        self._of: dict[RunDir, int] = {}

    def of(self, runs: Iterable[RunDir], together: Iterable[Sequence[RunDir]] = ()) -> dict[RunDir, int]:
        """Returns the places of these runs, in their order; those that are not among them lose theirs.

        Those of each of `together` have one place. If more are needed than there are letters all are in a band.
        """
        first = {run: group[0] for group in together for run in group}
        of_runs = {run: first.get(run, run) for run in runs}
        kept = {run: self._of.get(run) for run in of_runs.values()}
        taken = set(kept.values())
        free = (place for place in count() if place not in taken)
        self._of = {run: next(free) if place is None else place for run, place in kept.items()}
        is_band = len(kept) > len(LETTERS)
        return {run: BAND if is_band else self._of[holder] for run, holder in of_runs.items()}
