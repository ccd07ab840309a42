"""Histories of runs that report metrics of any names, and neither totals nor step times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tests.kit import histories as h
from tuiapp.trainers.contract.events import AnyEvent, Metrics, RankStarted, RunEnded, RunStarted, Status, Summary

RUN_ID = "20261120T101500-script-finetune-3fa1"

TRAIN = ("train/loss", "train/ppl", "train/tokens", "grad/norm", "grad/clipped", "reward")
EVALUATED = ("eval/f1", "eval/bleu", "eval/loss")


def started(world_size: int = 1, *, config: dict[str, object] | None = None) -> RunStarted:
    return RunStarted(run_id=RUN_ID, host="gpubox", pid=4100, config=config or {}, world_size=world_size, **h.at(0))


def value_of(name: str, step: int, rank: int = 0) -> float:
    """A curve that differs with the name and rises or falls."""
    seed = sum(map(ord, name)) % 17
    falling = math.exp(-step / (20 + 5 * seed)) + 0.05 * math.sin(step * (1 + rank + seed / 5))
    return 3 * falling if "loss" in name or "norm" in name else 10 * (1 - falling)


def logged(step: int, names: Sequence[str], *, rank: int = 0, seconds: float | None = None, **more: Any) -> Metrics:
    """One step's values, at half a second a step."""
    moment = 2.0 + step / 2 if seconds is None else seconds
    values: dict[str, list[float | None]] = {name: [value_of(name, step, rank)] for name in names}
    return Metrics(rank=rank, first_step=step, values=values, **{**h.at(moment), **more})


def running(
    world_size: int = 1, *, last_step: int = 120, every: int = 2, names: Sequence[str] = TRAIN, **more: Any
) -> list[AnyEvent]:
    """A script that logs every second step, evaluates every 20, and never says how many there will be."""
    events: list[AnyEvent] = [started(world_size, **more)]
    events += [RankStarted(rank=rank, pid=4121 + rank, device="cpu", **h.at(1.0)) for rank in range(world_size)]
    for step in range(every, last_step + 1, every):
        events += [logged(step, names, rank=rank) for rank in range(world_size)]
        if step % 20 == 0:
            events.append(logged(step, EVALUATED))
    return events


def ended(status: Status = "completed", *, step: int = 120) -> RunEnded:
    summary = Summary(steps=step, epochs=None, seconds=2.0 + step / 2)
    return RunEnded(status=status, reason=f"{step:,} steps", summary=summary, **h.at(2.5 + step / 2))


def completed(world_size: int = 1, **more: Any) -> list[AnyEvent]:
    return [*running(world_size, **more), ended()]
