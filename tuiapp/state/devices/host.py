"""The host beneath a run: CPU, memory, swap, shared memory, disk, network."""

from __future__ import annotations

from collections.abc import Sequence

from trainers.contract.events import HostSample
from tuiapp.state.devices.figures import NOT_AVAILABLE, rate, share
from tuiapp.state.devices.gpu_rows import LABEL_CELLS
from tuiapp.state.devices.processes import bar_room, note_cells
from tuiapp.state.devices.spans import Line, Span, bar_row, join_fitting, line, pad
from tuiapp.state.text import fit, format_bytes, join_words, plural

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
        f"network {_network(host)}" if host.network_rx_bytes_per_s is not None else "",
    ]
    return line("  ", Span(join_fitting(words, width - 2), "muted"))


def host_rows(host: HostSample, width: int, most: int = 99) -> list[Line]:
    """Describes the host in at most `most` rows with bars, the most important first."""
    note = note_cells(width)
    room = bar_room(width)
    memory = _part(host.memory_used_bytes, host.memory_total_bytes)
    swap = _part(host.swap_used_bytes, host.swap_total_bytes)
    shm = _part(host.shm_used_bytes, host.shm_total_bytes)
    free, total = host.disk_free_bytes, host.disk_total_bytes
    load = join_words([f"load {host.load_1m:.2f}", plural(host.cpu_cores, "core") if note > 13 else ""])
    rows: list[tuple[int, Line]] = [(0, _row("host CPU", host.cpu_percent / 100, load, room))]
    rows += [(3, cores) for cores in _cores(host.cpu_percent_per_core or (), width)]
    rows.append((1, _row("host memory", memory, share(host.memory_used_bytes, host.memory_total_bytes), room)))
    if host.swap_total_bytes:
        rows.append((6, _row("swap", swap, share(host.swap_used_bytes, host.swap_total_bytes), room)))
    if host.shm_total_bytes:
        rows.append((4, _row("/dev/shm", shm, share(host.shm_used_bytes, host.shm_total_bytes), room, fills=True)))
    used = _part(total - free, total) if total else None
    rows.append((2, _row("disk of runs", used, f"{format_bytes(free)} free", room, fills=True)))
    rows.append((5, line("  ", Span(_rest(host, width - 2), "muted"))))
    kept = sorted(range(len(rows)), key=lambda number: (rows[number][0], number))[: max(2, most)]
    return [pad(rows[number][1], width) for number in sorted(kept)]


def _rest(host: HostSample, room: int) -> str:
    spans = ((5, host.load_5m), (15, host.load_15m))
    loads = [f"{minutes} min {load:.2f}" for minutes, load in spans if load is not None]
    load = f"load over {', '.join(loads)}" if loads else ""
    network = f"network {_network(host)}" if host.network_rx_bytes_per_s is not None else ""
    return join_fitting([network, load, _missing(host)], room)


def _row(label: str, fraction: float | None, note: str, room: int, *, fills: bool = False) -> Line:
    """Returns a row with a bar of `room` cells for a fraction of 0 to 1; `fills`: a warning when it is almost full."""
    percentage = 100 * fraction if fraction is not None else None
    full = fills and fraction is not None and fraction >= NEARLY_FULL
    left = Span("▲ " if full else "  ", "warning"), fit(label, LABEL_CELLS - 2)
    right = Span(note, "warning" if full else "")
    return bar_row(left, percentage, room, "warning" if full else "info", right, cells=6)


def _cores(cores: Sequence[float], width: int) -> list[Line]:
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


def _network(host: HostSample) -> str:
    return f"↓{rate(host.network_rx_bytes_per_s)} ↑{rate(host.network_tx_bytes_per_s)}"


def _missing(host: HostSample) -> str:
    totals = {"swap": host.swap_total_bytes, "/dev/shm": host.shm_total_bytes, "network": host.network_rx_bytes_per_s}
    absent = [name for name, total in totals.items() if total is None]
    none = "no swap" if host.swap_total_bytes == 0 else ""
    return join_words([none, f"{', '.join(absent)} {NOT_AVAILABLE}" if absent else ""])


def _part(used: float | None, total: float | None) -> float | None:
    return used / total if used is not None and total else None
