"""The normalization of inputs: mean and standard deviation of each channel, given or taken from the training data."""

from __future__ import annotations

import re
from math import isfinite

import msgspec

DATA = "data"
"""The value of `normalize` that takes mean and deviation from the training data."""


class Normalization(msgspec.Struct, frozen=True):
    """Normalizes images, uint8 scaled to 0–1: each channel less its mean, over its deviation."""

    mean: tuple[float, ...]
    """[channels]."""
    std: tuple[float, ...]
    """[channels], above 0."""

    def fits(self, channels: int) -> bool:
        return len(self.mean) == len(self.std) == channels

    def over(self, channels: int) -> Normalization:
        """Returns the normalization of so many channels: single numbers are repeated."""
        mean, std = (values * channels if len(values) == 1 else values for values in (self.mean, self.std))
        return Normalization(mean, std)


def parse_normalization(text: str) -> Normalization | None:
    """Reads "0.29 / 0.35", or a number for each channel; None for "" and "data", whose numbers are not known by it.

    Raises ValueError that says what is allowed.
    """
    if text in ("", DATA):
        return None
    try:
        mean, std = (tuple(float(word) for word in re.split(r"[\s,]+", part.strip())) for part in text.split("/"))
    except ValueError:
        mean, std = (), ()
    sound = mean and std and all(map(isfinite, (*mean, *std))) and min(std) > 0
    if not sound or (len(mean) != len(std) and 1 not in (len(mean), len(std))):
        raise ValueError(
            f"{text[:60]!r} is neither {DATA!r} nor means / deviations above 0, a number for each channel or one for "
            "all, as '0.49 0.48 0.45 / 0.25 0.24 0.26'."
        )
    return Normalization(mean, std)
