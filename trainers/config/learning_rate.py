"""The learning rate of the actual global batch, from one that is given for another.

A batch k times as large is given k times the rate (Goyal et al. 2017, arXiv 1706.02677), or, as is usual with adam and
its kin, its square root times (Krizhevsky 2014, arXiv 1404.5997).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.run_config import RunConfig, build_config


def actual_rate(config: RunConfig) -> float:
    """What warm-up rises to and the schedule falls from."""
    if not config.learning_rate_for:
        return config.learning_rate
    ratio = config.global_batch_size / config.learning_rate_for
    return config.learning_rate * (sqrt(ratio) if config.learning_rate_scaling == "sqrt" else ratio)


def rate_words(config: RunConfig) -> str:
    """Says what a rate given for another batch comes to, "0.1 for 256 → 0.4 at 1,024"; "" if it is used as given."""
    if not config.learning_rate_for:
        return ""
    given = f"{config.learning_rate:.6g} for {config.learning_rate_for:,}"
    return f"{given} → {actual_rate(config):.6g} at {config.global_batch_size:,}"


def started_rate_words(config: Mapping[str, object]) -> str:
    """Returns `rate_words` of a configuration as a journal has it; "" if it cannot be read."""
    if not config.get("learning_rate_for"):
        return ""
    try:
        return rate_words(build_config(config))
    except ConfigError:
        return ""
