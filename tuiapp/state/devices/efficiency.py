"""A run's efficiency, in a line."""

from __future__ import annotations

from tuiapp.state.devices.figures import flops
from tuiapp.state.devices.spans import Line, Span, join_fitting, line
from tuiapp.state.efficiency import Efficiency
from tuiapp.state.run_state import RunState
from tuiapp.state.text import format_metric, format_percent


def efficiency_words(found: Efficiency) -> list[str]:
    """Formats model FLOP/s and MFU, idle share, examples per joule; unknown figures are left out."""
    words = [
        f"model {flops(found.flops_per_second)}" if found.flops_per_second is not None else "",
        f"MFU {format_percent(found.mfu, 1)}" if found.mfu is not None else "",
        f"GPU idle {format_percent(found.gpu_idle_share)}" if found.gpu_idle_share is not None else "",
        f"{format_metric(found.examples_per_joule)} examples/J" if found.examples_per_joule is not None else "",
        f"data wait {format_percent(found.data_wait_share, 1)}" if found.data_wait_share is not None else "",
    ]
    return [word for word in words if word]


def efficiency_line(state: RunState, width: int) -> Line:
    """Returns the recent efficiency, as far as it fits into the width; nothing while a live run stands still."""
    if state.is_live and not state.is_moving:
        return []
    text = _within(state.meter.efficiency(), width - 2)
    return line("  ", Span(text, "bold")) if text else []


def _within(found: Efficiency, width: int) -> str:
    """Joins as many figures as fit; FLOP/s never appear without another that identifies them."""
    named = efficiency_words(found)
    if found.flops_per_second is None:
        return join_fitting(named, width)
    others = named[1:]
    # MFU beside them does.
    short = [flops(found.flops_per_second), *others] if found.mfu is not None else others
    texts = [join_fitting(words, width) for words in (named, short)]
    return max(texts, key=lambda text: sum(word in text for word in others))
