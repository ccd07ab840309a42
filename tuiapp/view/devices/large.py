"""Devices with a screen to themselves: graphs as high as the room allows, then the processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tuiapp.trainers.state.efficiency import Efficiency
from tuiapp.trainers.state.readings import HISTORY, History
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.text import format_bytes, format_metric, format_percent
from tuiapp.view.devices.drawing import Line, Span, beside, flops, join_fitting, line, percent, stacked
from tuiapp.view.devices.gpu_matrix import METERS, foreign_processes, gpu_matrix, parts_of
from tuiapp.view.devices.host import gauges, graphs_across, host_blocks, host_graphs
from tuiapp.view.devices.processes import ProcessKey, ProcessRow, process_table, spilled
from tuiapp.view.devices.view import GpuView, one_row_each
from tuiapp.view.heat import LABEL_CELLS, LEAST_MEMBERS, Member, heat_lines, heat_of
from tuiapp.view.rank_list import gpu_members, rank_members


def efficiency_words(found: Efficiency) -> list[str]:
    """Formats model FLOP/s and MFU, idle share, examples, or tokens, per joule; unknown figures are left out."""
    words = [
        f"model {flops(found.flops_per_second)}" if found.flops_per_second is not None else "",
        f"MFU {format_percent(found.mfu, 1)}" if found.mfu is not None else "",
        f"GPU idle time {format_percent(found.gpu_idle_share)}" if found.gpu_idle_share is not None else "",
        _per_joule(found),
        f"data wait {format_percent(found.data_wait_share, 1)}" if found.data_wait_share is not None else "",
    ]
    return [word for word in words if word]


def _per_joule(found: Efficiency) -> str:
    if found.tokens_per_joule is not None:
        return f"{format_metric(found.tokens_per_joule)} tokens/J"
    return f"{format_metric(found.examples_per_joule)} examples/J" if found.examples_per_joule is not None else ""


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


LEAST_ROWS, MOST_ROWS = 2, 8  # of a GPU's graph
LEAST_HOST_ROWS = 3
OTHERS = 4  # least processes shown that are not the run's


def large_view(
    state: RunState,
    views: Sequence[GpuView],
    processes: Sequence[ProcessRow],
    width: int,
    height: int,
    sort: ProcessKey,
    node: int = 0,
) -> list[Line]:
    """Returns lines of a node that fill `height`, or are more where it is too small for all."""
    sample, history = state.host_of(node)
    # Of all nodes it is above their list.
    derived = efficiency_line(state, width) if not state.nodes else []
    unknown = foreign_processes(views, width)[-1:] if any(view.gpu.has_unknown for view in views) else []
    head = stacked(
        [
            [derived] if derived else [],
            one_row_each(views, width) if views and parts_of(views, width) > 1 else [],
        ]
    )
    own = sum(bool(row.role or row.gpus) for row in processes)
    least = min(len(processes), own + OTHERS) + spilled(processes, width)
    full = gauges(sample, width) if sample else []
    across = graphs_across(width, 4 if views else 2)
    blocks = len(host_blocks(sample, history)) if sample else 0
    stacks = -(-blocks // across)

    def host(rows: int) -> list[Line]:
        return host_graphs(sample, history, width, rows, across) + full if sample else []

    heats = device_heats(state, views, width, node)

    def drawn(rows: int, host_rows: int, most: int) -> list[Line]:
        table = process_table(processes, width, most, sort) if processes else []
        return stacked([head, heats, gpu_matrix(views, width, rows), unknown, host(host_rows), table])

    # A graph each would say the same.
    rows, host_rows = 0 if heats else LEAST_ROWS, LEAST_HOST_ROWS
    spare = height - len(drawn(rows, host_rows, least))
    if views and not heats:
        each = len(gpu_matrix(views, width, rows + 1)) - len(gpu_matrix(views, width, rows)) or 1
        more = max(0, min(MOST_ROWS - rows, (spare * 2 // 3) // each))
        rows, spare = rows + more, spare - more * each
    if stacks:
        # The graphs grow first where there are no GPUs, else the list.
        room = spare if len(processes) <= least else spare // 2
        more = max(0, room // stacks)
        host_rows, spare = host_rows + more, spare - more * stacks
    return drawn(rows, host_rows, least + max(0, spare))


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
