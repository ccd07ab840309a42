"""Colours of curves that people with colour blindness can distinguish."""

from __future__ import annotations

from string import ascii_lowercase

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


def letter_of(place: int) -> str:
    """Returns the letter of a run at a place; of one in a band the band's sign."""
    return LETTERS[place] if 0 <= place < len(LETTERS) else "▒"
