"""The learning rate of each step: one function of its number, for every backend."""

from __future__ import annotations

from math import cos, pi

import numpy as np

from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.config.run_config import actual_rate

RISE = 0.3
"""Share of the steps in which one-cycle rises."""
FIRST, LAST = 1 / 25, 1 / 250_000
"""Factors at one-cycle's first and last step."""
DROPS = (0.5, 0.75)
"""Shares of the steps after which `step` drops."""


def rate_factor(plan: Plan, step: int) -> float:
    """Returns the factor of the actual learning rate, from 0 to 1, at a step counted from 1.

    Rises linearly over `warmup_steps`; then stays at 1 (constant), drops to a tenth after a half and after three
    quarters of the other steps (step; He et al. 2015, arXiv 1512.03385, section 4.2), or falls along half a cosine
    (Loshchilov and Hutter 2017, without restarts) or a straight line that would reach 0 one step after the run's last,
    so that no step is made at rate 0. One-cycle has a rise of its own.
    """
    config = plan.config
    if config.schedule == "one-cycle":
        return one_cycle(step, plan.total_steps, config.warmup_steps or RISE * plan.total_steps)
    if step <= config.warmup_steps:
        return step / config.warmup_steps
    done = (step - config.warmup_steps - 1) / max(1, plan.total_steps - config.warmup_steps)
    match config.schedule:
        case "cosine":
            return (1 + cos(pi * done)) / 2
        case "linear":
            return 1 - done
        case "step":
            return 0.1 ** sum(done >= drop for drop in DROPS)
    return 1.0


def one_cycle(step: int, total: int, peak: float) -> float:
    """Rises along half a cosine from 1/25 at the first step to 1 at `peak`, and falls to 1/250,000 at the last.

    Steps are counted from 1; the peak may lie between two, but an only step is made at it. Otherwise as PyTorch's
    OneCycleLR has it by default, after Smith and Topin 2018 (arXiv 1708.07120).
    """
    if step < peak:
        return along_cosine(FIRST, 1, (step - 1) / (peak - 1))
    return along_cosine(1, LAST, (step - peak) / (total - peak) if total > max(1, peak) else 0)


def along_cosine(start: float, end: float, done: float) -> float:
    """Returns a value on the half cosine between two, `done` being 0 at the start and 1 at the end."""
    return end + (start - end) * (1 + cos(pi * done)) / 2


def learning_rate(plan: Plan, step: int) -> np.float32:
    """Returns the learning rate of a step, counted from 1; float32, as a compiled step takes it."""
    return np.float32(actual_rate(plan.config) * rate_factor(plan, step))
