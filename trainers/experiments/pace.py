"""How long runs take, as far as earlier ones of their kind tell."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

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
    """Seconds until the last run has ended, if devices are free."""
    gpu_hours: float
    """0 on the CPU."""


Kind: TypeAlias = tuple[str, ...]
"""What runs have in common that take equally long for a step, or as a whole."""


def kind(config: RunConfig) -> Kind:
    """Returns the kind of a run."""
    size = f"{config.platform} {config.devices} {config.nodes} {config.global_batch_size}"
    return config.backend, config.model, config.dataset, config.script, size


def recent(runs_dir: Path) -> dict[Kind, RunInfo]:
    """Returns the newest completed run of each kind."""
    runs = find_run_dirs(runs_dir)[-RECENT:]
    return {kind(info.config): info for info in map(summarise, runs) if info.status == "completed" and info.config}


def seconds(config: RunConfig, total_steps: int, newest: Mapping[Kind, RunInfo]) -> float | None:
    """Returns what a run takes by an earlier one of its kind; None if there is none."""
    earlier = newest.get(kind(config))
    if earlier is None or not earlier.summary.seconds:
        return None
    steps = earlier.summary.steps
    return earlier.summary.seconds * (total_steps / steps if total_steps and steps else 1)


def cost(
    runs: int,
    at_a_time: int,
    placed: RunConfig,
    total_steps: int,
    newest: Mapping[Kind, RunInfo],
    swept: Collection[str] = (),
) -> Cost | None:
    """Returns what runs like an earlier one take; None if there is none, or they take differently long.

    `placed` is the first one's configuration with its devices, of `total_steps`, 0 if that is not known. They differ in
    the keys that are `swept`.
    """
    run_s = seconds(placed, total_steps, newest)
    if run_s is None or not OF_A_KIND.isdisjoint(swept):
        return None
    gpus = placed.devices * placed.nodes if placed.platform == "cuda" else 0
    return Cost(-(-runs // max(1, at_a_time)) * run_s, runs * gpus * run_s / 3600)
