"""The last minutes of five GPUs or more, or of as many ranks' processes, as heat maps: one a figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tuiapp.trainers.state.readings import HISTORY, History
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.text import format_bytes
from tuiapp.view.devices.drawing import Line, beside, percent
from tuiapp.view.devices.gpu_matrix import METERS
from tuiapp.view.devices.view import GpuView
from tuiapp.view.heat import LABEL_CELLS, LEAST_MEMBERS, Member, heat_lines, heat_of
from tuiapp.view.rank_list import gpu_members, rank_members

LEAST_CELLS = 36  # across, with the labels
GAP = 2  # cells between two


def device_heats(state: RunState, views: Sequence[GpuView], width: int, node: int = 0) -> list[Line]:
    """Returns heat maps of a node's GPUs or, without any, of its ranks' processes; none of fewer than five."""
    maps: list[Callable[[int], list[Line]]] = []
    if len(views) >= LEAST_MEMBERS:
        members = gpu_members(state, views)
        for meter in METERS:
            histories = [meter.history(view.gpu) for view in views]
            known = _known(histories)
            limits = [limit for view in views if (limit := meter.limit(view.gpu.sample)) is not None]
            if known:
                top = max(limits or known)
                maps.append(_map(meter.name, members, histories, top, f"{{:.0f}} {meter.unit}".format))
    elif not views:
        ranks = state.ranks_of(node) if state.nodes else sorted(state.ranks)
        cpu, memory = ([getattr(state.ranks[rank], name) for rank in ranks] for name in ("cpu", "memory"))
        known, bytes_known = (_known(histories) for histories in (cpu, memory))
        if len(ranks) >= LEAST_MEMBERS and bytes_known:
            members = rank_members(state, ranks)
            maps += [_map("CPU, of one core", members, cpu, max(100.0, *known), _percent)] if known else []
            maps.append(_map("memory", members, memory, max(bytes_known), format_bytes))
    if not maps:
        return []
    stacks = -(-len(maps) // max(1, (width + GAP) // (LEAST_CELLS + GAP)))
    across = -(-len(maps) // stacks)
    cells = (width - GAP * (across - 1)) // across
    lines: list[Line] = []
    for first in range(0, len(maps), across):
        blocks = [draw(cells) for draw in maps[first : first + across]]
        lines += [[], *(beside(row, cells, GAP) for row in zip(*blocks, strict=True))]
    return lines[1:]


def _known(histories: Sequence[History]) -> list[float]:
    return [value for history in histories for value in history if value is not None]


def _percent(value: float) -> str:
    return percent(value).strip()


def _map(
    name: str, members: Sequence[Member], histories: Sequence[History], top: float, words: Callable[[float], str]
) -> Callable[[int], list[Line]]:
    def draw(cells: int) -> list[Line]:
        room = cells - LABEL_CELLS - 1
        each = max(1, room // HISTORY)
        values = np.full((len(members), room), np.nan)
        for row, history in zip(values, histories, strict=True):
            recent = [np.nan if value is None else value for value in list(history)[-(room // each) :]]
            row[room - each * len(recent) :] = np.repeat(recent, each)
        return heat_lines(name, heat_of(members, values, len(members), format=words), (0.0, top))

    return draw
