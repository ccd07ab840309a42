"""The host beneath a run: CPU, memory, swap, shared memory, disk, network; in a few lines, and as graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tuiapp.trainers.contract.events import HostSample
from tuiapp.trainers.state.readings import History, HostHistory
from tuiapp.trainers.state.text import fit, format_bytes, join_words, plural
from tuiapp.view.devices.drawing import (
    NOT_AVAILABLE,
    Line,
    Span,
    axis,
    bar_row,
    bar_span,
    beside,
    columns,
    graph,
    join_fitting,
    labelled,
    level,
    line,
    pad,
    rate,
    share,
    sign,
    tiled,
)
from tuiapp.view.devices.processes import bar_room, note_cells
from tuiapp.view.devices.view import LABEL_CELLS

NEARLY_FULL = 0.95  # of /dev/shm or the disk: more is highlighted
MOST_CORE_LINES = 4
MOST_CORES = 1024
_LEVELS = "▁▂▃▄▅▆▇█"


def host_line(host: HostSample, width: int) -> Line:
    """Describes the host in one line, for where the GPUs take the room."""
    words = [
        f"host CPU {host.cpu_percent:3.0f} %",
        share(host.memory_used_bytes, host.memory_total_bytes),
        f"load {host.load_1m:.2f}",
        f"{format_bytes(host.disk_free_bytes)} disk free",
        f"/dev/shm {share(host.shm_used_bytes, host.shm_total_bytes)}" if host.shm_total_bytes else "",
        _traffic_words(host),
    ]
    return line("  ", Span(join_fitting(words, width - 2), "muted"))


def full_rows(host: HostSample, width: int) -> list[Line]:
    """Returns the rows of what is nearly full: the disk of the runs, /dev/shm."""
    shares = _filled_shares(host)
    return [
        pad(_row(label, *shares[label], bar_room(width), fills=True), width)
        for label in ("/dev/shm", "runs disk")
        if (shares[label][0] or 0.0) >= NEARLY_FULL
    ]


def host_rows(host: HostSample, width: int, most: int = 99) -> list[Line]:
    """Describes the host in at most `most` rows with bars, the most important first."""
    note = note_cells(width)
    room = bar_room(width)
    memory, shares = _part(host.memory_used_bytes, host.memory_total_bytes), _filled_shares(host)
    load = join_words([f"load {host.load_1m:.2f}", plural(host.cpu_cores, "core") if note > 13 else ""])
    rows: list[tuple[int, Line]] = [(0, _row("host CPU", host.cpu_percent / 100, load, room))]
    rows += [(3, cores) for cores in _core_bars(host.cpu_percent_per_core or (), width)]
    rows.append((1, _row("host memory", memory, share(host.memory_used_bytes, host.memory_total_bytes), room)))
    if host.swap_total_bytes:
        rows.append((6, _row("swap", *shares["swap"], room)))
    if host.shm_total_bytes:
        rows.append((4, _row("/dev/shm", *shares["/dev/shm"], room, fills=True)))
    rows.append((2, _row("runs disk", *shares["runs disk"], room, fills=True)))
    rows.append((5, line("  ", Span(_remaining_words(host, width - 2), "muted"))))
    kept = sorted(range(len(rows)), key=lambda number: (rows[number][0], number))[: max(2, most)]
    return [pad(rows[number][1], width) for number in sorted(kept)]


def _remaining_words(host: HostSample, room: int) -> str:
    """Returns what has no bar, as far as it fits: traffic, the load of some minutes, and what is not available."""
    spans = ((5, host.load_5m), (15, host.load_15m))
    loads = [f"{minutes} min {load:.2f}" for minutes, load in spans if load is not None]
    load = f"load over {', '.join(loads)}" if loads else ""
    return join_fitting([_traffic_words(host), load, _missing(host)], room)


def _row(label: str, fraction: float | None, note: str, room: int, *, fills: bool = False) -> Line:
    """Returns a row with a bar of `room` cells for a fraction of 0 to 1; `fills`: a warning when it is almost full."""
    percentage = 100 * fraction if fraction is not None else None
    full = fills and fraction is not None and fraction >= NEARLY_FULL
    left = Span("▲ " if full else "  ", "warning"), fit(label, LABEL_CELLS - 2)
    right = Span(note, "warning" if full else "")
    return bar_row(left, percentage, room, "warning" if full else "info", right, cells=6)


def _core_bars(cores: Sequence[float], width: int) -> list[Line]:
    cells = [_LEVELS[min(7, max(0, int(value / 12.5)))] for value in cores[:MOST_CORES]]
    blocks = ["".join(cells[first : first + 8]) for first in range(0, len(cells), 8)]
    at_once = max(1, (width - LABEL_CELLS - 1) // 9)
    rows = [" ".join(blocks[first : first + at_once]) for first in range(0, len(blocks), at_once)]
    if len(rows) > MOST_CORE_LINES:
        rows = rows[:MOST_CORE_LINES]
        rows[-1] = f"{rows[-1][:-1]}…"
    return [
        line("  ", fit("  each core" if row == 0 else "", LABEL_CELLS - 2), " ", Span(text, "info"))
        for row, text in enumerate(rows)
    ]


def _traffic_words(host: HostSample) -> str:
    if host.network_rx_bytes_per_s is None:
        return ""
    return f"network ↓{rate(host.network_rx_bytes_per_s)} ↑{rate(host.network_tx_bytes_per_s)}"


def _missing(host: HostSample) -> str:
    totals = {"swap": host.swap_total_bytes, "/dev/shm": host.shm_total_bytes, "network": host.network_rx_bytes_per_s}
    absent = [name for name, total in totals.items() if total is None]
    none = "no swap" if host.swap_total_bytes == 0 else ""
    return join_words([none, f"{', '.join(absent)} {NOT_AVAILABLE}" if absent else ""])


def _filled_shares(host: HostSample) -> dict[str, tuple[float | None, str]]:
    """Returns what fills up → how full it is, from 0 to 1, and that in words."""
    free, total = host.disk_free_bytes, host.disk_total_bytes
    sizes = {
        "/dev/shm": (host.shm_used_bytes, host.shm_total_bytes),
        "swap": (host.swap_used_bytes, host.swap_total_bytes),
    }
    return {
        "runs disk": (_part(total - free if total else None, total), f"{format_bytes(free)} free"),
        **{name: (_part(*size), share(*size)) for name, size in sizes.items()},
    }


def _part(used: float | None, total: float | None) -> float | None:
    return used / total if used is not None and total else None


GAP = 3  # cells between two graphs
LEAST_CELLS = 34  # least width of a graph
LEAST_GRAPH_ROWS = 2
GAUGE_LABEL_CELLS = 14
GAUGE_NOTE_CELLS = 15

Block = Callable[[int, int], list[Line]]
"""Width and rows → a title, and as many lines."""


def graphs_across(width: int, most: int) -> int:
    """Returns how many graphs fit side by side: 1, 2 or 4."""
    return next((count for count in (4, 2) if count <= most and width >= count * (LEAST_CELLS + GAP)), 1)


def host_graphs(host: HostSample, history: HostHistory, width: int, rows: int, across: int) -> list[Line]:
    """Returns graphs of `rows` lines and a title each, `across` of them side by side."""
    cells = (width - GAP * (across - 1)) // across
    blocks = [draw(cells, rows) for draw in host_blocks(host, history)]
    return [row for tiles in tiled(blocks, across, cells, GAP) for row in tiles]


def host_view(host: HostSample, history: HostHistory, width: int, height: int) -> list[Line]:
    """Returns graphs, and bars of what fills up, that take `height` lines; none where that is too low for them."""
    across, full = graphs_across(width, 2), gauges(host, width)
    stacks = -(-len(host_blocks(host, history)) // across)
    rows = (height - len(full)) // stacks - 1
    return [*host_graphs(host, history, width, rows, across), *full] if rows >= LEAST_GRAPH_ROWS else []


def host_blocks(host: HostSample, history: HostHistory) -> list[Block]:
    """Returns what there is to draw of a host."""
    loads = " ".join(f"{load:.2f}" for load in (host.load_1m, host.load_5m, host.load_15m) if load is not None)
    used = 100 * host.memory_used_bytes / host.memory_total_bytes if host.memory_total_bytes else None
    memory = share(host.memory_used_bytes, host.memory_total_bytes)

    def cpu(width: int, rows: int) -> list[Line]:
        words = join_fitting([f"load {loads}", plural(host.cpu_cores, "core")], width - 15)
        title = line(Span("host CPU", "bold"), f" {host.cpu_percent:3.0f} % ", Span(words, "muted"))
        return [title, *_drawn(history.cpu, width, rows, 100, "100 %")]

    def filled(width: int, rows: int) -> list[Line]:
        percent = f" {used:3.0f} % " if used is not None else " "
        title = line(Span("host memory", "bold"), percent, sign(level(used)), Span(f" {memory}", "muted"))
        return [title, *_drawn(history.memory, width, rows, 100, "100 %")]

    blocks: list[Block] = [cpu, filled]
    if cores := host.cpu_percent_per_core:
        blocks.insert(1, lambda width, rows: _cores(cores, width, rows))
    if host.network_rx_bytes_per_s is not None:
        blocks.append(lambda width, rows: _network(host, history, width, rows))
    return blocks


def _drawn(values: History, width: int, rows: int, top: float, label: str) -> list[Line]:
    labels = axis(rows, label)
    return labelled(labels, graph(values, width - len(labels[0]), rows, top))


def _network(host: HostSample, history: HostHistory, width: int, rows: int) -> list[Line]:
    """Returns what is received above what is sent, each on its own scale."""
    received, sent = rate(host.network_rx_bytes_per_s), rate(host.network_tx_bytes_per_s)
    lines = [line(Span("network", "bold"), f" ↓{received} ↑{sent}")]
    upper = -(-rows // 2)
    for arrow, values, height in (("↓", history.received, upper), ("↑", history.sent, rows - upper)):
        if height:
            top = max(filter(None, values), default=0.0)
            lines += _drawn(values, width, height, top, f"{arrow} {rate(top):>10}")
    return lines


def _cores(values: Sequence[float], width: int, rows: int) -> list[Line]:
    """Returns a column per core, or where they are too many, per group: the busiest of it."""
    labels = axis(rows, "100 %")
    room = width - len(labels[0])
    values = values[:MOST_CORES]
    group = -(-len(values) // room)
    shown = [max(values[first : first + group]) for first in range(0, len(values), group)]
    gap = 1 if 3 * len(shown) <= room else 0
    cells = (room + gap) // len(shown) - gap
    what = f"{len(values)} cores" if group == 1 else f"{len(values)} cores, the busiest of {group}"
    busiest = f" · {max(values):.0f} % the busiest" if group == 1 else ""
    title = line(Span("each core", "bold"), Span(f" {what}{busiest}", "muted"))
    return [title, *labelled(labels, columns(shown, cells, gap, rows, 100.0))]


def gauges(host: HostSample, width: int) -> list[Line]:
    """Returns a bar for each thing that fills up: the disk, /dev/shm, swap; as many in a line as fit."""
    shares = [(name, part, note) for name, (part, note) in _filled_shares(host).items() if part is not None]
    across = max(1, min(len(shares), (width + GAP) // (GAUGE_LABEL_CELLS + GAUGE_NOTE_CELLS + 20)))
    cells = (width - GAP * (across - 1)) // across
    bars = [_gauge(name, 100 * part, note, cells) for name, part, note in shares]
    return [beside(bars[first : first + across], cells, GAP) for first in range(0, len(bars), across)]


def _gauge(name: str, percent: float, note: str, width: int) -> Line:
    severity = level(percent)
    room = max(1, width - GAUGE_LABEL_CELLS - GAUGE_NOTE_CELLS - 8)
    return line(
        Span(fit(name, GAUGE_LABEL_CELLS), "bold"),
        bar_span(percent, room, severity),
        f" {percent:3.0f} % ",
        sign(severity),
        Span(f" {note}", "muted"),
    )
