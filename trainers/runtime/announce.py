"""An attempt's first event."""

from __future__ import annotations

import os
import socket

from trainers.config.catalog import model_size
from trainers.config.run_config import RunConfig, to_toml_values
from trainers.contract.events import RunStarted
from trainers.contract.rundir import RunDir


def start(run: RunDir, config: RunConfig, attempt: int, resumed_from: int) -> RunStarted:
    """What a run is: told by its supervisor, which is this process."""
    return RunStarted(
        run_id=run.run_id,
        attempt=attempt,
        resumed_from=resumed_from,
        host=socket.gethostname(),
        pid=os.getpid(),
        config=to_toml_values(config),
        world_size=config.devices,
        steps_per_epoch=config.steps_per_epoch,
        total_steps=config.total_steps,
        flops_per_example=model_size(config.model, config.dataset).flops,
    )
