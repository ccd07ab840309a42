"""Which failures look transient: the same run may succeed when it is started again."""

from __future__ import annotations

import re

from tuiapp.trainers.contract.events import RankFailed, RunEnded
from tuiapp.trainers.contract.journal_ends import peek_journal
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.launch.processes import TOO_SLOW
from tuiapp.trainers.state.summary import since_start, summarise

KILLED_FOR_MEMORY = "by the kernel's out-of-memory killer"
"""As the hint of a `RankFailed` begins."""

LOST_DEVICE = re.compile(
    r"GPU is lost|fallen off the bus|uncorrectable ECC|NVLink error|hardware (stack )?error"
    r"|device\(?s?\)? (is|are) busy or unavailable|unspecified launch failure|Xid",
    re.IGNORECASE,
)
"""Found in what a framework says of a device that has failed.

Source: https://docs.nvidia.com/cuda/cuda-runtime-api/, "cudaError_t".
"""


def is_transient(run: RunDir) -> bool:
    """Whether an ended run failed for want of a device, of the host's memory, of a node, or of its supervisor.

    Also if that did not start in time.
    """
    info = summarise(run)
    if info.status == "lost":
        return True
    if info.status != "failed":
        return False
    if info.reason.startswith(TOO_SLOW):
        return True
    events = since_start(peek_journal(run.journal).tail())
    end = events[-1] if events else None
    failed = [event for event in events if isinstance(event, RankFailed)]
    causes = [one for one in failed if isinstance(end, RunEnded) and one.rank == end.failed_rank] or failed
    return any(_looks_transient(cause) for cause in causes)


def _looks_transient(cause: RankFailed) -> bool:
    said = "\n".join([cause.error, *cause.last_lines])
    return cause.lost or cause.hint.startswith(KILLED_FOR_MEMORY) or bool(LOST_DEVICE.search(said))
