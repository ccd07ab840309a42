"""How long runs take, as far as earlier ones of their kind tell."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.rundir import find_run_dirs
from tuiapp.trainers.state.summary import RunInfo, summarise

RECENT = 200
"""The newest runs of a directory, among which one of the same kind is looked for."""


OF_A_KIND = {"backend", "model", "dataset", "script", "devices", "platform", "nodes", "epochs", "max_steps"} | {
    "global_batch_size", "per_device_batch_size",
}  # fmt: skip
"""Keys by which runs take differently long: of a sweep through one of them nothing is said."""


class Cost(NamedTuple):
    seconds: float
    """Until the last run has ended, if devices are free."""
    gpu_hours: float
    """0 on the CPU."""


def kind(config: RunConfig | None) -> tuple[str, ...]:
    """Returns what runs have in common that take equally long for a step, or as a whole; () if nothing is known."""
    if config is None:
        return ()
    size = f"{config.platform} {config.devices} {config.nodes} {config.global_batch_size}"
    return config.backend, config.model, config.dataset, config.script, size


def recent(runs_dir: Path) -> dict[tuple[str, ...], RunInfo]:
    """Returns the newest completed run of each kind."""
    runs = find_run_dirs(runs_dir)[-RECENT:]
    return {kind(info.config): info for info in map(summarise, runs) if info.status == "completed"}


def cost(
    runs: int,
    at_a_time: int,
    placed: RunConfig,
    total_steps: int,
    known: dict[tuple[str, ...], RunInfo],
    swept: Collection[str] = (),
) -> Cost | None:
    """Returns what runs like an earlier one take; None if there is none, or they take differently long.

    `placed` is the first one's configuration with its devices; of `total_steps`, 0 if that is not known, each takes as
    long as the earlier one's did. They differ in the keys that are `swept`.
    """
    earlier = known.get(kind(placed))
    if earlier is None or not earlier.summary.seconds or not OF_A_KIND.isdisjoint(swept):
        return None
    steps = earlier.summary.steps
    each = earlier.summary.seconds * (total_steps / steps if total_steps and steps else 1)
    gpus = placed.devices * placed.nodes if placed.platform == "cuda" else 0
    return Cost(-(-runs // max(1, at_a_time)) * each, runs * gpus * each / 3600)
