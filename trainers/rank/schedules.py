"""The learning rate over a run, as a pure function that every backend shares."""

from __future__ import annotations

from math import cos, pi

import numpy as np

from trainers.config.plan import Plan


def rate_factor(plan: Plan, step: int) -> float:
    """The factor of `learning_rate`, from 0 to 1, at a step counted from 1.

    Rises linearly over `warmup_steps`; then stays at 1 (constant), or falls along half a cosine (Loshchilov and Hutter
    2017, without restarts) or a straight line that would reach 0 one step after the run's last, so that no step is made
    at rate 0.
    """
    config = plan.config
    if step <= config.warmup_steps:
        return step / config.warmup_steps
    if config.schedule == "constant":
        return 1.0
    done = (step - config.warmup_steps - 1) / max(1, plan.total_steps - config.warmup_steps)
    return (1 + cos(pi * done)) / 2 if config.schedule == "cosine" else 1 - done


def learning_rate(plan: Plan, step: int) -> np.float32:
    """The learning rate of a step, counted from 1; float32, as a compiled step takes it."""
    return np.float32(plan.config.learning_rate * rate_factor(plan, step))
