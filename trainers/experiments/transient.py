"""Which failures of a run look transient: the same run may succeed when it is started again."""

from __future__ import annotations

from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.launch.processes import TOO_SLOW
from tuiapp.trainers.state.status import known
from tuiapp.trainers.state.summary import summarise


def is_transient(run: RunDir) -> bool:
    """Whether an ended run failed for want of a device, of the host's memory, of a node, or of its supervisor.

    Also if that did not start in time.
    """
    info = summarise(run)
    if info.status != "failed":
        return info.status == "lost"
    end = known(run).status.end
    return info.reason.startswith(TOO_SLOW) or (end is not None and end.transient)
