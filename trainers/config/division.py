"""How a run's devices are divided over its nodes."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainers.config.run_config import RunConfig

_COUNT = r"[1-9][0-9]{0,6}"


def devices_per_node(text: str) -> tuple[int, ...]:
    """Reads `devices_per_node`, "4+2"; () for "", equally many. Raises ValueError."""
    if not text:
        return ()
    if not re.fullmatch(rf"{_COUNT}( *\+ *{_COUNT})+", text):
        raise ValueError(f"{text!r} is not a number of devices for each node, as 4+2; for equally many leave it empty.")
    return tuple(map(int, text.split("+")))


def devices_of_nodes(config: RunConfig) -> tuple[int, ...]:
    """The devices of each node of a placed configuration."""
    return devices_per_node(config.devices_per_node) or (config.devices // config.nodes,) * config.nodes


def node_of(rank: int, ranks: tuple[int, ...]) -> int:
    """The node of a rank, where each has so many; the last one's for a rank beyond."""
    return next((node for node, end in enumerate(accumulate(ranks)) if rank < end), len(ranks) - 1)
