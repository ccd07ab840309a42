"""Which failures of a rank look transient: the same run may succeed when it is started again."""

from __future__ import annotations

import re

from tuiapp.trainers.contract.events import RankFailed

KILLED_FOR_MEMORY = "by the kernel's out-of-memory killer"
"""How the hint of a `RankFailed` begins."""

LOST_DEVICE = re.compile(
    r"GPU is lost|fallen off the bus|uncorrectable ECC|NVLink error|hardware (stack )?error"
    r"|device\(?s?\)? (is|are) busy or unavailable|unspecified launch failure|Xid",
    re.IGNORECASE,
)
"""Found in what a framework says of a device that has failed.

Source: https://docs.nvidia.com/cuda/cuda-runtime-api/, "cudaError_t".
"""


def looks_transient(cause: RankFailed) -> bool:
    """Whether a rank failed for want of a device, of the host's memory, or of a node."""
    said = "\n".join([cause.error, *cause.last_lines])
    return cause.lost or cause.hint.startswith(KILLED_FOR_MEMORY) or bool(LOST_DEVICE.search(said))
