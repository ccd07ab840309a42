"""An attempt's first event."""

from __future__ import annotations

import os
import socket

from trainers.config.plan import Plan
from trainers.config.run_config import to_toml_values
from trainers.contract.events import RunStarted
from trainers.contract.rundir import RunDir


def start(run: RunDir, plan: Plan, attempt: int, resumed_from: int) -> RunStarted:
    """Builds the event that describes the run; this process is its supervisor."""
    return RunStarted(
        run_id=run.run_id,
        attempt=attempt,
        resumed_from=resumed_from,
        host=socket.gethostname(),
        pid=os.getpid(),
        config=to_toml_values(plan.config),
        world_size=plan.config.devices,
        steps_per_epoch=plan.steps_per_epoch,
        total_steps=plan.total_steps,
        flops_per_example=plan.flops_per_example,
    )
