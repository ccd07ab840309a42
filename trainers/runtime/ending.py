"""How a run ended, as its last event."""

from __future__ import annotations

from trainers.contract.events import RankFailed, RunEnded, Summary
from trainers.contract.wording import describe_failure
from trainers.runtime.failures import first_cause
from trainers.runtime.teardown import Teardown


def sum_up(failures: list[tuple[RankFailed, bool]], teardown: Teardown, summary: Summary, total_steps: int) -> RunEnded:
    """Builds the run's last event; `failures` as for `first_cause`."""
    if failures:
        cause = first_cause(failures)
        return RunEnded(status="failed", reason=describe_failure(cause), summary=summary, failed_rank=cause.rank)
    if teardown.stopping and summary.steps < total_steps:
        return RunEnded(status="stopped", reason=teardown.reason(summary.steps), summary=summary)
    return RunEnded(status="completed", reason=f"{summary.steps:,} of {total_steps:,} steps", summary=summary)
