"""An attempt's first and last event, built by its supervisor."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.config.run_config import RunConfig, to_toml_values
from tuiapp.trainers.config.slurm import slurm_job
from tuiapp.trainers.contract.events import Phase, RankFailed, RankStarted, RunEnded, RunStarted, Summary
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.run.failures import first_cause
from tuiapp.trainers.run.teardown import Teardown
from tuiapp.trainers.state.messages import describe_failure


def run_started_event(run: RunDir, plan: Plan, attempt: int, resumed_from: int | None) -> RunStarted:
    """Builds the event that describes the run; this process is its supervisor."""
    return RunStarted(
        run_id=run.run_id,
        attempt=attempt,
        resumed_from=resumed_from,
        host=socket.gethostname(),
        nodes=1 + plan.others if plan.others else plan.config.nodes,
        pid=os.getpid(),
        config=to_toml_values(plan.config),
        world_size=plan.world_size,
        steps_per_epoch=plan.steps_per_epoch,
        total_steps=plan.total_steps,
        flops_per_example=plan.flops_per_example,
        job=slurm_job(),
        part=plan.part,
    )


def script_started_events(
    config: RunConfig, rank: int, pid: int, local_rank: int, gpus: Sequence[str]
) -> list[RankStarted | Phase]:
    """What a built-in trainer's rank reports of itself, for a rank of a script, which does not.

    `gpus` are the UUIDs of its node's.
    """
    device, uuid = config.platform, ""
    if config.platform == "cuda" and config.processes == "per-device":
        device, uuid = f"cuda:{local_rank}", gpus[local_rank]
    return [RankStarted(rank=rank, pid=pid, device=device, uuid=uuid), Phase(rank=rank, phase="training")]


def run_ended_event(
    failures: list[tuple[RankFailed, bool]], teardown: Teardown, summary: Summary, total_steps: int
) -> RunEnded:
    """Builds the run's last event; `failures` as for `first_cause`."""
    if failures:
        cause = first_cause(failures)
        return RunEnded(status="failed", reason=describe_failure(cause), summary=summary, failed_rank=cause.rank)
    if teardown.stopping and (not total_steps or summary.steps < total_steps):
        return RunEnded(status="stopped", reason=teardown.reason(summary.steps), summary=summary)
    if not total_steps:
        reason = f"{summary.steps:,} steps" if summary.steps else "all processes exited with code 0"
        return RunEnded(status="completed", reason=reason, summary=summary)
    early = "early stop: " if summary.steps < total_steps else ""
    return RunEnded(status="completed", reason=f"{early}{summary.steps:,} of {total_steps:,} steps", summary=summary)
