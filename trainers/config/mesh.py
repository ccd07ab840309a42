"""The mesh of a run's devices, and along which axis the weights are split over one of its axes.

Devices along "batch" have other examples each, those along "model" other parts of the weights. A rule is a regular
expression, searched for in a weight's name, and the axis that is split: of several the first that is found. An axis is
counted from the end if it is negative; None, or no rule, leaves the weight whole on every device.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

AXES = ("batch", "model")

Rules: TypeAlias = Mapping[str, int | None]

OUTPUTS: Rules = {r"(kernel|bias|scale|embeddings?|gamma|beta|mean|var|variance)$": -1}
"""Each layer's outputs: Flax and Keras have them last in a weight."""
TRANSFORMER: Rules = {r"(\b|_)(out|fc2)\W+kernel$": 0, r"(\b|_)(out|fc2)\W+bias$|norm": None, **OUTPUTS}
"""What is added to the residual stream is split by inputs, so that attention's heads and the hidden layer's units stay
where they are computed (Shoeybi et al. 2019, arXiv 1909.08053).
"""


class Mesh(NamedTuple):
    batch: int
    """Parts of a global batch."""
    model: int
    """Parts of a weight."""

    def __str__(self) -> str:
        return f"batch={self.batch},model={self.model}"


class Split(NamedTuple):
    axis: int | None
    """From 0; None: the weight is whole on every device."""
    why_not: str = ""
    """Why it is whole although a rule would split it."""


def parse_mesh(text: str) -> Mesh | None:
    """Reads "batch=2,model=2", in which an axis that is not named has one device; None for "".

    Raises ValueError that says what is allowed.
    """
    if not text.strip():
        return None
    found = dict[str, int]()
    for word in text.split(","):
        name, equals, count = (part.strip() for part in word.partition("="))
        if not equals or name not in AXES or name in found or not re.fullmatch(r"[1-9][0-9]{0,3}", count):
            raise ValueError(
                f"{text[:60]!r} is no mesh: give the devices along each axis, as 'batch=2,model=2'; the axes are batch "
                "and model, each once, of 1 to 9999 devices."
            )
        found[name] = int(count)
    return Mesh(found.get("batch", 1), found.get("model", 1))


def mesh_of(text: str, devices: int) -> Mesh:
    """The mesh of a configuration that is known to be right: by default one axis of all devices."""
    return parse_mesh(text) or Mesh(max(1, devices), 1)


def split_of(name: str, shape: tuple[int, ...], rules: Rules, parts: int) -> Split:
    """How a weight is split over `parts` devices; raises ValueError for a rule with an axis that it has not."""
    axis = next((axis for pattern, axis in rules.items() if re.search(pattern, name)), None)
    if axis is None or not shape or parts == 1:
        return Split(None)
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"a rule splits axis {axis} of {name}, whose shape is {list(shape)}.")
    axis %= len(shape)
    if shape[axis] % parts:
        return Split(None, f"{shape[axis]} is not divisible by {parts}")
    return Split(axis)
