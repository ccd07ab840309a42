"""How devices, batches and weights are divided, as the keys `mesh`, `devices_per_node` and `shares` say.

Devices along "batch" have other examples each, those along "model" other parts of the weights. A rule is a regular
expression, searched for in a weight's name, and the axis that is split: of several the first that is found. An axis is
counted from the end if it is negative; None, or no rule, leaves the weight whole on every device.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import gcd
from typing import NamedTuple, TypeAlias

AXES = ("batch", "model")

EQUAL, MEASURED = "equal", "measured"
"""Values of `shares` that are no list."""
_COUNT = r"[1-9][0-9]{0,6}"


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
    axes = dict[str, int]()
    for word in text.split(","):
        name, equals, count = (part.strip() for part in word.partition("="))
        if not equals or name not in AXES or name in axes or not re.fullmatch(r"[1-9][0-9]{0,3}", count):
            raise ValueError(
                f"{text[:60]!r} is no mesh: give the devices along each axis, as 'batch=2,model=2'; the axes are batch "
                "and model, each once, of 1 to 9999 devices."
            )
        axes[name] = int(count)
    return Mesh(axes.get("batch", 1), axes.get("model", 1))


def mesh_of(text: str, devices: int) -> Mesh:
    """Returns the mesh of a configuration that is known to be right: by default one axis of all devices."""
    return parse_mesh(text) or Mesh(max(1, devices), 1)


def split_of(name: str, shape: tuple[int, ...], rules: Rules, parts: int) -> Split:
    """Returns how a weight is split over `parts` devices; raises ValueError for a rule with an axis that it has not."""
    axis = next((axis for pattern, axis in rules.items() if re.search(pattern, name)), None)
    if axis is None or not shape or parts == 1:
        return Split(None)
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"a rule splits axis {axis} of {name}, whose shape is {list(shape)}.")
    axis %= len(shape)
    if shape[axis] % parts:
        return Split(None, f"{shape[axis]} is not divisible by {parts}")
    return Split(axis)


def devices_per_node(text: str) -> tuple[int, ...]:
    """Reads `devices_per_node`, "4+2"; () for "", equally many. Raises ValueError."""
    if not text:
        return ()
    if not re.fullmatch(rf"{_COUNT}( *\+ *{_COUNT})+", text):
        raise ValueError(f"{text!r} is not a number of devices for each node, as 4+2; for equally many leave it empty.")
    return tuple(map(int, text.split("+")))


def weights(text: str) -> tuple[int, ...]:
    """Reads `shares`, "3:1", in lowest terms; () for those that are no list. Raises ValueError."""
    if text in (EQUAL, MEASURED):
        return ()
    if not re.fullmatch(rf"{_COUNT}( *: *{_COUNT})+", text):
        raise ValueError(
            f"{text!r} is not allowed; it must be {EQUAL}, {MEASURED}, or whole numbers of at least 1, as 3:1, one for "
            "each rank or each node."
        )
    numbers = tuple(map(int, text.split(":")))
    common = gcd(*numbers)
    return tuple(number // common for number in numbers)


def divide_batch(shares: str, batch: int, nodes: tuple[int, ...], accumulate: int) -> tuple[int, ...]:
    """Divides a global batch over the ranks of nodes with so many devices each, by `shares`; () for equally.

    Raises ValueError if there is no such division.
    """
    numbers, devices = weights(shares), sum(nodes)
    if not numbers:
        return ()
    if len(numbers) not in (devices, len(nodes)):
        count = f"{devices} ranks" + (f" on {len(nodes)} nodes" if len(nodes) > 1 else "")
        raise ValueError(f"{shares} has {len(numbers)} numbers for {count}: give one for each.")
    if batch % sum(numbers):
        low = batch // sum(numbers) * sum(numbers)
        can = f"{low} or {low + sum(numbers)}" if low else str(sum(numbers))
        raise ValueError(f"{shares} does not divide {batch} examples into whole parts: {can} can be divided so.")
    parts = [batch // sum(numbers) * number for number in numbers]
    if len(numbers) != devices:
        for number, (part, ranks) in enumerate(zip(parts, nodes, strict=True)):
            if part % ranks:
                message = f"{shares} gives node {number} {part} examples"
                raise ValueError(f"{message}, which its {ranks} ranks cannot share equally.")
        parts = [part // ranks for part, ranks in zip(parts, nodes, strict=True) for _ in range(ranks)]
    if uneven := [part for part in parts if part % accumulate]:
        message = f"{shares} gives a rank {uneven[0]} examples, which make no {accumulate} equal parts."
        raise ValueError(f"{message} That is what accumulate asks for.")
    return tuple(parts) if len(set(parts)) > 1 else ()
