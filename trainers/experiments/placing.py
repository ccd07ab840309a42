"""Which queued runs can start now, and why the others wait: a decision from facts, without effects.

First come, first served within a priority. A run that must wait reserves the devices that are free and that it could
have: smaller ones behind it do not take them, so that it is not starved. What it cannot use they may have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tuiapp.trainers.config.gpu_choice import rank
from tuiapp.trainers.config.machine import VISIBLE, Gpu, choose
from tuiapp.trainers.contract.sidecars import UNREAD, Entry, Waiting
from tuiapp.trainers.state.text import plural

CPU, SLURM = "cpu", "slurm"
"""Names of what is not a GPU, as a holder of devices is known by."""


@dataclass(frozen=True, slots=True)
class HeldDevices:
    """What a live run has: UUIDs of GPUs, or a slot of the CPU."""

    run_id: str
    gpus: tuple[str, ...] = ()
    """UUIDs of its GPUs; empty if it has a slot of the CPU."""
    exclusive: bool = False
    on_slurm: bool = False
    ends: float = math.inf
    """Unix time at which it is expected to end."""


@dataclass(frozen=True, slots=True)
class Facts:
    now: float
    gpus: Sequence[Gpu]
    """All of the machine, those of whole GPUs with MIG their instances."""
    busy: Collection[str]
    """UUIDs of those that somebody else uses."""
    live: Sequence[HeldDevices]
    cpu_slots: int


@dataclass(frozen=True, slots=True)
class Start:
    entry: Entry
    gpus: tuple[str, ...]
    """UUIDs of those that it may choose from; empty for none."""


def decide(queue: Sequence[Entry], facts: Facts) -> tuple[list[Start], dict[str, str]]:
    """Returns what starts now, and why the rest waits, by run id.

    One start at most for each device: what `queue` has is sorted, the next one first.
    """
    taken = {uuid for held in facts.live for uuid in held.gpus} | set(facts.busy)
    slots = facts.cpu_slots - sum(not held.gpus and not held.on_slurm for held in facts.live)
    jobs = sum(held.on_slurm for held in facts.live)
    local = [held for held in facts.live if not held.on_slurm]
    alone = next((held.run_id for held in local if held.exclusive), "")
    any_local, closed = bool(local), ""
    starts, reasons = list[Start](), dict[str, str]()
    for entry in queue:
        waiting, run_id = entry.waiting, entry.run.run_id
        if waiting.held:
            reasons[run_id] = "held"
            continue
        if waiting is UNREAD:
            reasons[run_id] = "its waits.json cannot be read now"
            continue
        if waiting.not_before > facts.now:
            reasons[run_id] = f"tried again in {waiting.not_before - facts.now:.0f} s"
            continue
        if waiting.on_slurm:
            if waiting.parallel and jobs >= waiting.parallel:
                reasons[run_id] = f"{plural(jobs, 'job')} with Slurm, and at most {waiting.parallel} at a time"
                continue
            jobs += 1
            starts.append(Start(entry, ()))
            continue
        if alone or closed:
            reasons[run_id] = f"{alone} runs alone" if alone else f"{closed} is to run alone"
            continue
        if waiting.exclusive and any_local:
            closed, reasons[run_id] = run_id, "waits until it is alone"
            continue
        if waiting.platform != "cuda":
            if slots < 1:
                reasons[run_id] = f"waits for the CPU, which takes {plural(facts.cpu_slots, 'run')} at a time"
                continue
            slots -= 1
            starts.append(Start(entry, ()))
        else:
            usable = eligible(waiting, facts.gpus)
            free = [gpu.uuid for gpu in sorted(usable, key=rank) if gpu.uuid not in taken]
            needed = _needed(waiting)
            if len(free) < needed or not usable:
                reasons[run_id] = _lacking(waiting, usable, len(free))
                taken |= set(free)
                continue
            # It names those that it takes; of any it gets all that are free if it asks for no number.
            assigned = free[:needed] if waiting.devices else free
            taken |= set(assigned)
            starts.append(Start(entry, tuple(assigned)))
        any_local = True
        alone = run_id if waiting.exclusive else ""
    return starts, reasons


def eligible(waiting: Waiting, gpus: Sequence[Gpu]) -> list[Gpu]:
    """Returns the GPUs that a run could have, busy or not: those that it names, or its session could see."""
    if waiting.device_ids:
        return [gpu for gpu in gpus if gpu.uuid in waiting.device_ids]
    wanted = waiting.environment.get(VISIBLE)
    if wanted is None:
        visible = [*gpus]
    else:
        uuids = choose(wanted, {gpu.uuid: [] for gpu in gpus})
        visible = [gpu for gpu in gpus if gpu.uuid in uuids]
    # A run can use one MIG instance alone.
    return visible if waiting.devices == 1 else [gpu for gpu in visible if gpu.part is None]


def _needed(waiting: Waiting) -> int:
    """Returns how many slots or GPUs a run starts with at least."""
    return 1 if waiting.platform != "cuda" else len(waiting.device_ids) or waiting.devices or 1


def _lacking(waiting: Waiting, usable: Sequence[Gpu], free: int) -> str:
    if not usable:
        return "its GPUs are not on this machine now"
    if waiting.device_ids:
        return f"waits for GPU {', '.join(gpu.number for gpu in usable)}"
    needed = _needed(waiting)
    return f"waits for {needed} GPU{'s' if needed > 1 else ''}: {free} free of {len(usable)}"


def forecast(
    queue: Sequence[Entry], facts: Facts, duration: Callable[[Entry], float | None]
) -> Mapping[str, float | None]:
    """Returns when each queued run is expected to start, by run id; None where that is not known.

    Args:
        queue: What waits, the next one first.
        facts: As of `decide`.
        duration: How many seconds a queued run will take; None if that is not known.
    """
    slots = [f"slot {number}" for number in range(facts.cpu_slots)]
    until = dict.fromkeys(slots, facts.now)
    until |= {gpu.uuid: math.inf if gpu.uuid in facts.busy else facts.now for gpu in facts.gpus}
    for held in facts.live:
        until |= dict.fromkeys(held.gpus, held.ends)
        if not held.gpus and not held.on_slurm and slots:
            until[min(slots, key=until.__getitem__)] = held.ends
    starts: dict[str, float | None] = {}
    for entry in queue:
        waiting = entry.waiting
        if waiting.held or waiting.on_slurm:
            starts[entry.run.run_id] = None
            continue
        usable = [gpu.uuid for gpu in eligible(waiting, facts.gpus)] if waiting.platform == "cuda" else slots
        needed = _needed(waiting)
        chosen = sorted(usable, key=until.__getitem__)[:needed]
        start = until[chosen[-1]] if len(chosen) == needed else math.inf
        if waiting.exclusive:
            start = max(start, *until.values())
        start = max(start, waiting.not_before, facts.now)
        starts[entry.run.run_id] = start if math.isfinite(start) else None
        ends = start + (duration(entry) or math.inf)
        until |= dict.fromkeys(until if waiting.exclusive else chosen, ends)
    return starts
