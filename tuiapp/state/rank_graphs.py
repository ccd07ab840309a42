"""The ranks' step times over the run, side by side on one scale: whose is longer, and since when?"""

from __future__ import annotations

import math

from trainers.contract.metrics import STEP_TIME
from tuiapp.state.curves import ALL
from tuiapp.state.devices.graph import axis, graph, samples_across
from tuiapp.state.devices.spans import Line, Role, Span, beside, line
from tuiapp.state.devices.view import letter_span
from tuiapp.state.run_state import RunState
from tuiapp.state.text import format_seconds

GAP = 3  # cells between two graphs
LEAST_CELLS, LEAST_ROWS = 34, 3
MOST_PERCENT = 98  # of the step times are within the scale


def rank_graphs(state: RunState, width: int, height: int, among: range | None = None) -> list[Line]:
    """Returns a title and a graph for each rank (`among` some) that reports step times, in at most `height` lines."""
    candidates = among if among is not None else state.curves.ranks(STEP_TIME)
    ranks = [rank for rank in candidates if rank != ALL and len(state.curves[rank, STEP_TIME])]
    most = max(1, (width + GAP) // (LEAST_CELLS + GAP))
    stacks = min(-(-len(ranks) // most), height // (LEAST_ROWS + 1))
    if not stacks or state.step < 1:
        return []
    across = min(most, -(-len(ranks) // stacks))
    rows, cells = height // stacks - 1, (width - GAP * (across - 1)) // across
    ranks = ranks[: across * stacks]
    room = cells - len(format_seconds(1.0)) - 2
    curves = {rank: state.curves[rank, STEP_TIME].reduce(samples_across(room), 1, state.step).mean for rank in ranks}
    values = {rank: [None if math.isnan(one) else float(one) for one in curve] for rank, curve in curves.items()}
    known = sorted(one for curve in values.values() for one in curve if one is not None)
    # The first steps may take a hundred times as long: they are cut.
    top = 1.1 * known[len(known) * MOST_PERCENT // 100] if known else 0.0
    places = {rank: place for place, (rank, _) in reversed(list(enumerate(state.devices())))}
    labels = axis(rows, f"{format_seconds(top):>{cells - room - 1}}")

    def block(rank: int) -> list[Line]:
        pace = state.ranks[rank].pace.step_s if rank in state.ranks else None
        place = places.get(rank)
        title = line(
            letter_span(place), Span(f" rank {rank}", "bold"), Span(f"  step time {format_seconds(pace)}", "muted")
        )
        drawn = graph(values[rank], room, rows, top)
        ink: Role = place if place is not None else "info"
        return [title, *(line(Span(name, "muted"), Span(text, ink)) for name, text in zip(labels, drawn, strict=True))]

    lines: list[Line] = []
    for first in range(0, len(ranks), across):
        blocks = [block(rank) for rank in ranks[first : first + across]]
        lines += [beside(row, cells, GAP) for row in zip(*blocks, strict=True)]
    return lines
