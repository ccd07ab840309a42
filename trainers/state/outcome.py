"""What a run has come to, from its folded state: what lists show of it, and what its end sums up."""

from __future__ import annotations

import re
from itertools import islice
from math import isnan

from msgspec.structs import replace

from tuiapp.trainers.contract.events import MAX_FIGURES, Figures, RankFailed, RunEnded, RunStarted, Summary
from tuiapp.trainers.contract.metrics import DATA_WAIT, EXAMPLES, STEP_TIME, SYNC_WAIT, evaluation_of, loss_of, mean
from tuiapp.trainers.contract.status import SCHEMA, End, Status
from tuiapp.trainers.state.known_metrics import is_further
from tuiapp.trainers.state.run_state import RunState

NOT_RESULTS = (DATA_WAIT, EXAMPLES, STEP_TIME, SYNC_WAIT)


def status_of(state: RunState, size: int, seconds: float | None = None) -> Status:
    """Returns what the journal's first `size` bytes come to; `seconds` as for `summary_of`."""
    stall = state.stall
    return Status(
        schema=SCHEMA,
        size=size,
        first_time=state.beginning,
        time=state.last_time,
        started=state.beginning if state.started else None,
        begun=_without_config(state.started) if state.started else None,
        queued=state.queued,
        end=_end(state, state.ended) if state.ended else None,
        stop_asked=state.stop_asked,
        stalled=stall.alert.text if stall else "",
        rate=state.examples_per_second,
        summary=summary_of(state, seconds),
        name=state.facts.name,
    )


def _without_config(begun: RunStarted) -> RunStarted:
    """Returns an attempt's beginning without what lists do not need of its configuration."""
    config = {key: begun.config[key] for key in ("backend", "global_batch_size") if key in begun.config}
    return replace(begun, config=config)


def _end(state: RunState, ended: RunEnded) -> End:
    causes = [failure for failure in state.failures if failure.rank == ended.failed_rank] or state.failures
    lost = {number for number, node in state.nodes.items() if node.status == "lost"}
    return End(
        status=ended.status,
        reason=ended.reason,
        time=ended.time,
        transient=any(map(looks_transient, causes)),
        node_lost=any(cause.lost and cause.node in lost for cause in causes),
    )


def steps_on_all(state: RunState) -> int:
    """Returns the last step that every rank has reported; of a script, where one may report for all, that any has."""
    if state.is_script:
        # As long as a resumed one has reported nothing, all that it did before counts.
        return state.step or state.curves.timeline.steps[-1]
    return min((rank.step for rank in state.ranks.values()), default=0)


def summary_of(state: RunState, seconds: float | None = None, *, completed: bool = False) -> Summary:
    """Returns a run's figures; its attempt has taken `seconds`, by the clock of its events if they are None."""
    if state.ended is not None:
        return state.ended.summary
    if state.started is None and not state.ranks:
        return Summary()
    curves, timeline = state.curves, state.curves.timeline
    step = steps_on_all(state)
    steps = step + bool(curves.zero)
    if seconds is None:
        seconds = max(0.0, state.last_time - timeline.start) if timeline.start is not None else 0.0
    reported = curves.reported_epochs
    epochs = reported.over(completed=completed) if reported else None
    group, test_loss, test_accuracy = evaluation_of(curves.names)
    loss, accuracy = _figures(state, test_loss), _figures(state, test_accuracy)
    batch = state.config.get("global_batch_size")
    timed = timeline.timed[-1] * batch if isinstance(batch, int) else 0.0
    names = (name for name in curves.names if name not in NOT_RESULTS and (state.is_script or is_further(name)))
    return Summary(
        steps=steps,
        epochs=round(step / state.steps_per_epoch, 3) if state.steps_per_epoch else epochs,
        examples_per_second=timed / timeline.busy[-1] if timed and timeline.busy[-1] else None,
        loss=_loss(state),
        test_loss=loss.last,
        test_accuracy=accuracy.last,
        evaluated_on=group or Summary().evaluated_on,
        best_loss=loss.least,
        best_accuracy=accuracy.greatest,
        seconds=timeline.end if state.queued else timeline.base + seconds,
        metrics={name: _figures(state, name) for name in islice(names, MAX_FIGURES)},
        blemishes=state.marred.blemishes(steps, state.last_time),
    )


def _loss(state: RunState) -> float | None:
    """Returns the mean of the ranks' last losses: while none has reported in the present attempt, of those before."""
    name = loss_of([rank.loss_name for rank in state.ranks.values()])
    if name:
        reported = [rank for rank in state.ranks.values() if rank.loss_name == name]
        return mean([rank.loss for rank in reported], [rank.examples for rank in reported])
    curves, name = state.curves, loss_of(state.curves.names)
    return mean([_finite(curves[rank, name].last) for rank in curves.ranks(name)]) if name else None


def _figures(state: RunState, name: str) -> Figures:
    """Returns the figures of the first rank that has the metric."""
    if name not in state.curves.names:
        return Figures()
    curve = state.curves.first(name)
    return Figures(_finite(curve.last), *curve.bounds) if curve.bounds else Figures()


def _finite(value: float | None) -> float | None:
    return None if value is None or isnan(value) else value


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
