"""Histories of runs that do not simply go through: failed, stopped, resumed, with losses that are not finite."""

from __future__ import annotations

from tests.kit.histories import at, checkpoint, ended, rank_started, running, started, steps
from tuiapp.trainers.contract.events import Alert, AnyEvent, Differing, Phase, RankFailed, Replicas, StopRequested

TRACEBACK = """Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/trainers/rank/process.py", line 61, in main
    backend.train(config, rank, report)
  File "/venv/lib/python3.11/site-packages/trainers/backends/torch_ddp.py", line 118, in train
    loss = step(images, labels)
  File "/venv/lib/python3.11/site-packages/trainers/backends/torch_ddp.py", line 84, in step
    raise RuntimeError("CUDA error: an illegal memory access was encountered")
RuntimeError: CUDA error: an illegal memory access was encountered
"""


def failed(world_size: int = 2, *, gpus: bool = False) -> list[AnyEvent]:
    """Rank 1 raises in the middle of an epoch; rank 0 then loses its connection and is reported first."""
    return [
        *running(world_size, last_step=72, gpus=gpus),
        RankFailed(
            rank=0,
            exit_code=1,
            error="DistBackendError: Connection closed by peer",
            traceback="Traceback (most recent call last):\nDistBackendError: Connection closed by peer\n",
            step=72,
            **at(6.30),
        ),
        RankFailed(
            rank=1,
            exit_code=1,
            error="RuntimeError: CUDA error: an illegal memory access was encountered",
            traceback=TRACEBACK,
            step=72,
            **at(6.25),
        ),
        ended("failed", 6.5, reason="rank 1 failed", rank=1, step=72, world_size=world_size),
    ]


def stopped(world_size: int = 2) -> list[AnyEvent]:
    """Stopped on request within the third epoch, with a checkpoint; one was saved after each epoch."""
    saved = [checkpoint(29, 4.1, best=True), checkpoint(58, 5.05, best=True)]
    return [
        *sorted([*running(world_size, last_step=60), *saved], key=lambda event: event.time),
        *[steps(rank, 61, 72, 5.6) for rank in range(world_size)],
        StopRequested(by="command", save=True, **at(5.7)),
        checkpoint(72, 5.8),
        ended("stopped", 5.9, reason="on request, after step 72", step=72, world_size=world_size),
    ]


def resumed(world_size: int = 2, *, step: int = 72, seconds: float = 60.0) -> list[AnyEvent]:
    """What a second attempt writes until its first ten steps are made."""
    ranks = range(world_size)
    return [
        started(world_size, attempt=2, resumed_from=step, seconds=seconds),
        *[rank_started(rank, seconds=seconds + 1) for rank in ranks],
        *[Phase(rank=rank, phase="training", **at(seconds + 2)) for rank in ranks],
        *[steps(rank, step + 1, step + 10, seconds + 3, losses=[0.3] * 10) for rank in ranks],
    ]


def parted(world_size: int = 4) -> list[AnyEvent]:
    """The replica of rank 1 has another weight since the second comparison."""
    text = (
        "the weights of rank 1 differ from those of most ranks after step 116, first in conv2.weight; "
        "all were equal after step 58"
    )
    alert = Alert(kind="replicas", severity="error", rank=1, step=116, text=text, **at(8.5))
    found = [Differing(1, "conv2.weight")]
    compared = [
        Replicas(step=58, replicas=world_size, arrays=14, **at(5.0)),
        Replicas(step=116, replicas=world_size, arrays=14, differing=found, **at(8.5)),
    ]
    return [*running(world_size), *compared, alert]


def with_nan(world_size: int = 2) -> list[AnyEvent]:
    """Losses that are not finite for five steps."""
    hole: list[float | None] = [0.5] * 10 + [None] * 5 + [0.6] * 5
    events = running(world_size, last_step=60)
    events += [steps(rank, 61, 80, 6.0, losses=hole) for rank in range(world_size)]
    alert = Alert(kind="nan", rank=0, step=71, text="the loss of rank 0 is not finite since step 71", **at(6.0))
    return [*events, alert, *[steps(rank, 81, 100, 7.0) for rank in range(world_size)]]
