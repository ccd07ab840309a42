"""A warning that a run may not fit into memory: the same in the form and on the command line."""

from __future__ import annotations

from trainers.config.machine import Machine
from trainers.config.memory import MemoryEstimate, data_copies, shortages
from trainers.config.run_config import RunConfig
from tuiapp.state.text import format_bytes

LARGE_PART = 0.5  # share of the free memory above which data causes a warning


def memory_warning(placed: RunConfig, machine: Machine, estimate: MemoryEstimate) -> str:
    """Explains why a placed configuration may not fit, with figures; "" if it fits."""
    if short := shortages(placed, machine, estimate):
        least = min(short, key=lambda one: one.free_bytes)
        whose = (
            "per device"
            if placed.platform == "cuda"
            else "for each node's ranks"
            if placed.nodes > 1
            else "for all ranks"
        )
        wanted = f"about {format_bytes(least.wanted_bytes)} {whose}"
        return f"{wanted}, but {format_bytes(least.free_bytes)} free on {least.where}: it may not fit"
    data, free = estimate.data * data_copies(placed), machine.memory_available_bytes
    if free is not None and data > LARGE_PART * free:
        return f"the data take {format_bytes(data)} of {format_bytes(free)} free on this machine: it may not fit"
    return ""
