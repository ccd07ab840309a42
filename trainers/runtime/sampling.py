"""Samples a run's devices, ranks and host."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Protocol

from trainers.config.environment import GPUS_VARIABLE, INTERVAL_S, telemetry_interval_s
from trainers.config.options import ConfigError
from trainers.config.run_config import RunConfig
from trainers.contract.events import Event
from trainers.contract.rundir import RunDir
from trainers.telemetry.config import SamplerConfig
from trainers.telemetry.keeper import SamplerKeeper


class _Rank(Protocol):
    pid: int


def keep_sampler(
    run: RunDir,
    config: RunConfig,
    ranks: Mapping[int, _Rank],
    environment: Mapping[str, str],
    emit: Callable[[Event], None],
    watch: Callable[[int, Callable[[], None]], None],
    forget: Callable[[int], None],
    own_gpus: Sequence[str],
) -> SamplerKeeper:
    """Returns a keeper of the run's sampler, which starts it on its first `advance`.

    `environment` is `rank_environment`'s; `watch` registers a callback for a readable descriptor, `forget` ends that;
    `own_gpus` are the UUIDs of this node's.
    """
    try:
        interval_s = telemetry_interval_s()
    except ConfigError:
        # Refused at launch; a running supervisor ignores it.
        interval_s = INTERVAL_S
    gpus = os.environ.get(GPUS_VARIABLE) or ",".join(own_gpus)
    if not gpus and config.platform == "cuda":
        # Somebody else started the ranks: they have the GPUs that its environment shows them.
        gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
    order = SamplerConfig(
        run_dir=str(run.path),
        ranks={rank: process.pid for rank, process in ranks.items()},
        gpus=gpus,
        interval_s=interval_s,
    )

    def log() -> IO[bytes]:
        return open(os.open(run.supervisor_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")

    return SamplerKeeper(order, environment, log, emit, watch, forget)
