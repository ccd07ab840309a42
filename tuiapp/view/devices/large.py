"""Devices with a screen to themselves: graphs as high as the room allows, then the processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tuiapp.trainers.state.efficiency import Efficiency
from tuiapp.trainers.state.readings import HISTORY, History
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.text import format_bytes, format_metric, format_percent
from tuiapp.view.devices.drawing import Line, Span, flops, join_fitting, line, percent, stacked, tiled
from tuiapp.view.devices.gpu_matrix import METERS, foreign_processes, gpu_matrix, parts_of
from tuiapp.view.devices.host import gauges, graphs_across, host_blocks, host_graphs
from tuiapp.view.devices.processes import ProcessKey, ProcessRow, process_table, spilled
from tuiapp.view.devices.view import GpuView, one_row_each
from tuiapp.view.heat import LABEL_CELLS, LEAST_MEMBERS, Member, heat_lines, heat_of
from tuiapp.view.rank_list import gpu_members, rank_members


def efficiency_words(efficiency: Efficiency) -> list[str]:
    """Formats model FLOP/s and MFU, idle share, examples, or tokens, per joule; unknown figures are left out."""
    words = [
        f"model {flops(efficiency.flops_per_second)}" if efficiency.flops_per_second is not None else "",
        f"MFU {format_percent(efficiency.mfu, 1)}" if efficiency.mfu is not None else "",
        f"GPU idle time {format_percent(efficiency.gpu_idle_share)}" if efficiency.gpu_idle_share is not None else "",
        _per_joule(efficiency),
        f"data wait {format_percent(efficiency.data_wait_share, 1)}" if efficiency.data_wait_share is not None else "",
    ]
    return [word for word in words if word]


def _per_joule(efficiency: Efficiency) -> str:
    if efficiency.tokens_per_joule is not None:
        return f"{format_metric(efficiency.tokens_per_joule)} tokens/J"
    examples = efficiency.examples_per_joule
    return f"{format_metric(examples)} examples/J" if examples is not None else ""


def efficiency_line(state: RunState, width: int) -> Line:
    """Returns the recent efficiency, as far as it fits into the width; nothing while a live run stands still."""
    if state.is_live and not state.is_moving:
        return []
    text = _within(state.meter.efficiency(), width - 2)
    return line("  ", Span(text, "bold")) if text else []


def _within(efficiency: Efficiency, width: int) -> str:
    """Joins as many figures as fit; FLOP/s never appear without another that identifies them."""
    named = efficiency_words(efficiency)
    if efficiency.flops_per_second is None:
        return join_fitting(named, width)
    following = named[1:]
    # MFU beside FLOP/s says what they are.
    short = [flops(efficiency.flops_per_second), *following] if efficiency.mfu is not None else following
    texts = [join_fitting(figures, width) for figures in (named, short)]
    return max(texts, key=lambda text: sum(figure in text for figure in following))


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
    overview = one_row_each(views, width) if views and parts_of(views, width) > 1 else []
    of_run = sum(bool(row.role or row.gpus) for row in processes)
    least = min(len(processes), of_run + OTHERS) + spilled(processes, width)
    full = gauges(sample, width) if sample else []
    across = graphs_across(width, 4 if views else 2)
    blocks = len(host_blocks(sample, history)) if sample else 0
    stacks = -(-blocks // across)

    def host(rows: int) -> list[Line]:
        return host_graphs(sample, history, width, rows, across) + full if sample else []

    heats = device_heats(state, views, width, node)

    def drawn(rows: int, host_rows: int, most: int) -> list[Line]:
        table = process_table(processes, width, most, sort) if processes else []
        return stacked(
            [
                [derived] if derived else [],
                overview,
                heats,
                gpu_matrix(views, width, rows),
                unknown,
                host(host_rows),
                table,
            ]
        )

    # A graph each would say the same.
    rows, host_rows = 0 if heats else LEAST_ROWS, LEAST_HOST_ROWS
    spare = height - len(drawn(rows, host_rows, least))
    if views and not heats:
        row_lines = len(gpu_matrix(views, width, rows + 1)) - len(gpu_matrix(views, width, rows)) or 1
        added = max(0, min(MOST_ROWS - rows, (spare * 2 // 3) // row_lines))
        rows, spare = rows + added, spare - added * row_lines
    if stacks:
        # The graphs grow first where there are no GPUs, else the list.
        room = spare if len(processes) <= least else spare // 2
        added = max(0, room // stacks)
        host_rows, spare = host_rows + added, spare - added * stacks
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
            limits = [limit for view in views if (limit := meter.limit(view.gpu.sample)) is not None]
            if values := _known(histories):
                top = max(limits or values)
                maps.append(_map(meter.name, members, histories, top, f"{{:.0f}} {meter.unit}".format))
    elif not views:
        ranks = state.ranks_of(node) if state.nodes else sorted(state.ranks)
        cpu, memory = ([getattr(state.ranks[rank], name) for rank in ranks] for name in ("cpu", "memory"))
        percents, sizes = _known(cpu), _known(memory)
        if len(ranks) >= LEAST_MEMBERS and sizes:
            members = rank_members(state, ranks)
            maps += [_map("CPU, of one core", members, cpu, max(100.0, *percents), _percent)] if percents else []
            maps.append(_map("memory", members, memory, max(sizes), format_bytes))
    if not maps:
        return []
    stacks = -(-len(maps) // max(1, (width + GAP) // (LEAST_CELLS + GAP)))
    across = -(-len(maps) // stacks)
    cells = (width - GAP * (across - 1)) // across
    return stacked(tiled([draw(cells) for draw in maps], across, cells, GAP))


def _known(histories: Sequence[History]) -> list[float]:
    return [value for history in histories for value in history if value is not None]


def _percent(value: float) -> str:
    return percent(value).strip()


def _map(
    name: str, members: Sequence[Member], histories: Sequence[History], top: float, words: Callable[[float], str]
) -> Callable[[int], list[Line]]:
    def draw(cells: int) -> list[Line]:
        room = cells - LABEL_CELLS - 1
        cells_each = max(1, room // HISTORY)
        values = np.full((len(members), room), np.nan)
        for row, history in zip(values, histories, strict=True):
            recent = [np.nan if value is None else value for value in list(history)[-(room // cells_each) :]]
            row[room - cells_each * len(recent) :] = np.repeat(recent, cells_each)
        return heat_lines(name, heat_of(members, values, len(members), format=words), (0.0, top))

    return draw
