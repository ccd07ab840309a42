"""All figures of the GPUs: a column per GPU, a row per figure; those that none reports are listed once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from tuiapp.trainers.config.gpu_choice import Use
from tuiapp.trainers.contract.events import DeviceSample
from tuiapp.trainers.state.readings import HARMLESS_REASONS, HOT_C, GpuState, History, memory_percent
from tuiapp.trainers.state.text import format_bytes, join_words, sanitize, sparkline
from tuiapp.view.devices.drawing import (
    AXIS,
    NOT_AVAILABLE,
    Level,
    Line,
    Role,
    Span,
    axis,
    bar_span,
    celsius,
    graph,
    joules,
    level,
    line,
    megahertz,
    pad,
    share,
    sign,
    traffic,
    watts,
)
from tuiapp.view.devices.view import GpuView, letter_span, mig_name

LABEL_CELLS = 16
LEAST_CELLS = 14  # least width of a column, including a blank: "31.2/139 GiB"
MOST_CELLS = 92
LEAST_NAMED_CELLS = 17  # narrower columns show a process by its letter alone
FIGURE_CELLS = 15  # "31.2/139 GiB ▲ "
LEAST_BAR_CELLS = 6  # narrower bars are below their figures
UNCORRECTED = "ECC uncorrected"
MOST_PROCESSES = 4  # rows for processes per column; the last one counts the rest
Cell: TypeAlias = list[Span]
Row: TypeAlias = tuple[str, list[Cell]]  # name, and a cell per GPU, empty where not available


def gpu_matrix(views: Sequence[GpuView], width: int, graph_rows: int = 0) -> list[Line]:
    """Returns a table of all figures, split into as many parts as the width requires.

    With `graph_rows` the history of each of `METERS` is a graph of so many lines, not a sparkline.
    """
    if not views:
        return []
    across = -(-len(views) // parts_of(views, width))
    cells = min(MOST_CELLS, (width - LABEL_CELLS) // across)
    missing = [name for name, tell in _FIGURES.items() if not any(tell(view.gpu.sample) for view in views)]
    lines: list[Line] = []
    for first in range(0, len(views), across):
        if lines:
            lines.append([])
        for name, row in _rows(views[first : first + across], cells - 1, missing, graph_rows):
            if name.endswith(AXIS) or any(span.track or span.text.strip() for cell in row for span in cell):
                filled = [cell or [Span(NOT_AVAILABLE, "muted")] for cell in row] if name else row
                spans = [span for cell in filled for span in [*pad(cell, cells - 1), Span(" ")]]
                lines.append(pad(line(Span(name.ljust(LABEL_CELLS), "muted"), *spans), width))
    return [*lines, *_not_available(missing, width)]


def parts_of(views: Sequence[GpuView], width: int) -> int:
    """Returns into how many pieces the table is split."""
    return -(-len(views) // max(1, (width - LABEL_CELLS) // LEAST_CELLS))


def _rows(views: Sequence[GpuView], room: int, missing: Sequence[str], graph_rows: int) -> list[Row]:
    rows: list[Row] = [
        ("GPU", [[*_marked(view.place, f"{view.gpu.sample.index} {view.model}", "bold")] for view in views]),
        ("state", [_state(view, room) for view in views]),
        *_stacked("MIG", [_parts(view, room) for view in views]),
        *(row for meter in METERS if meter.name not in missing for row in _meter_rows(meter, views, room, graph_rows)),
    ]
    figures: list[Row] = []
    if any(view.gpu.sample.has_system_memory for view in views):
        owners = ["the system" if view.gpu.sample.has_system_memory else "the GPU" for view in views]
        figures.append(("memory of", list(map(_cell, owners))))
    if any(view.framework_bytes(lambda memory: memory.used_bytes) is not None for view in views):
        figures += [
            # Live arrays, and what is reserved from the driver, used or not.
            ("framework", [_bytes(view.framework_bytes(lambda memory: memory.used_bytes)) for view in views]),
            (" its peak", [_bytes(view.framework_bytes(lambda memory: memory.peak_bytes)) for view in views]),
            (" reserved", [_bytes(view.framework_bytes(lambda memory: memory.reserved_bytes)) for view in views]),
        ]
    figures += [
        (name, [_figure_cell(name, view.gpu.sample) for view in views])
        for name in _FIGURES
        if name not in (*missing, *_DRAWN)
    ]
    rows += _side_by_side(figures, room) if graph_rows else figures
    rows += _stacked("throttled by", [_reasons(view.gpu.sample) for view in views])
    rows += _stacked("processes", [_processes(view, room) for view in views])
    return rows


def _side_by_side(rows: Sequence[Row], room: int) -> list[Row]:
    """Joins rows of figures, as many as columns of `room` cells have room for."""
    across = 1 + max(0, room - LEAST_CELLS) // (LABEL_CELLS + LEAST_CELLS)
    joined: list[Row] = []
    for first in range(0, len(rows), across):
        (name, cells), *following = rows[first : first + across]
        joined.append((name, [[*cell] or [Span(NOT_AVAILABLE, "muted")] for cell in cells]))
        for label, figures in following:
            for cell, figure in zip(joined[-1][1], figures, strict=True):
                text = sum(len(span.text) for span in cell)
                blanks = " " * (-text % (LABEL_CELLS + LEAST_CELLS) - LABEL_CELLS)
                cell += [Span(blanks), Span(label.strip().ljust(LABEL_CELLS), "muted")]
                cell += figure or [Span(NOT_AVAILABLE, "muted")]
    return joined


def _marked(device: int | None, text: str, role: Role = "") -> Cell:
    """Returns a text after the letter of the run's device with that index, if there is one."""
    return [letter_span(device), Span(f" {text}", role)] if device is not None else [Span(text, role)]


def _state(view: GpuView, room: int) -> Cell:
    if view.condition is not None:
        return [Span(view.condition.within(room), view.condition.severity)]
    if view.ranks:
        return [Span("● ok", "good")]
    if view.gpu.sample.utilization_percent is None and view.gpu.processes is None:
        return []
    return [Span({Use.IDLE: "○ idle", Use.SHARED: "◐ shared", Use.IN_USE: "● in use"}[view.use], "muted")]


def _figure(view: GpuView, text: str) -> Cell:
    hot = view.condition is not None and view.condition.severity == "error"
    return [Span(text, "muted" if hot else "bold")] if text else []


def _memory(sample: DeviceSample) -> str:
    if sample.memory_used_bytes is None and sample.memory_total_bytes is None:
        return ""
    return share(sample.memory_used_bytes, sample.memory_total_bytes)


def _count(value: int | None) -> str:
    return f"{value:,}" if value is not None else ""


def _percent(value: float | None) -> str:
    return f"{value:3.0f} %" if value is not None else ""


_FIGURES: dict[str, Callable[[DeviceSample], str]] = {
    "utilization": lambda sample: _percent(sample.utilization_percent),
    "memory": _memory,
    "memory busy": lambda sample: _percent(sample.memory_utilization_percent),
    "power": watts,
    "energy": lambda sample: joules(sample.energy_j),
    "temperature": lambda sample: celsius(sample.temperature_c, sample.temperature_limit_c),
    "SM clock": lambda sample: megahertz(sample.sm_clock_mhz),
    "memory clock": lambda sample: megahertz(sample.memory_clock_mhz),
    "PCIe GB/s": lambda sample: traffic(sample.pcie_rx_bytes_per_s, sample.pcie_tx_bytes_per_s),
    "NVLink GB/s": lambda sample: traffic(sample.nvlink_rx_bytes_per_s, sample.nvlink_tx_bytes_per_s),
    "fan": lambda sample: _percent(sample.fan_percent),
    "ECC corrected": lambda sample: _count(sample.ecc_corrected),
    UNCORRECTED: lambda sample: _count(sample.ecc_uncorrected),
    "perf. state": lambda sample: f"P{sample.performance_state}" if sample.performance_state is not None else "",
    "throttled by": lambda sample: "told" if sample.throttle_reasons is not None else "",
    "processes": lambda sample: "told" if sample.processes is not None or sample.mig else "",
}
"""Name of a figure → its text for a sample; "" for none."""


class _Meter(NamedTuple):
    """A figure with a bar and a history."""

    name: str
    share: Callable[[DeviceSample], float | None]  # of its limit, in percent
    level: Callable[[float | None], Level]
    history: Callable[[GpuState], History]
    limit: Callable[[DeviceSample], float | None]  # in the history's unit
    unit: str
    bare: bool = False  # has a bar without a graph, too


def _never(percent: float | None) -> Level:
    return "good"  # a healthy GPU may work at full load, and at its power limit


METERS = (
    _Meter(
        "utilization",
        lambda sample: sample.utilization_percent,
        _never,
        lambda gpu: gpu.utilization,
        lambda sample: 100.0,
        "%",
        bare=True,
    ),
    _Meter("memory", memory_percent, level, lambda gpu: gpu.memory, lambda sample: 100.0, "%", bare=True),
    _Meter(
        "power",
        lambda sample: _part(sample.power_w, sample.power_limit_w),
        _never,
        lambda gpu: gpu.power,
        lambda sample: sample.power_limit_w,
        "W",
    ),
    _Meter(
        "temperature",
        lambda sample: _part(sample.temperature_c, sample.temperature_limit_c or HOT_C),
        partial(level, critical=100.0),
        lambda gpu: gpu.temperature,
        lambda sample: sample.temperature_limit_c or HOT_C,
        "°C",
    ),
)
_DRAWN = (*(meter.name for meter in METERS), "throttled by", "processes")  # figures with rows of their own


def _part(value: float | None, limit: float | None) -> float | None:
    return 100 * value / limit if value is not None and limit else None


def _meter_rows(meter: _Meter, views: Sequence[GpuView], room: int, graph_rows: int) -> list[Row]:
    """Returns the figure with a sign and a bar beside it, or beneath where there is little room, and its history."""
    beside = room - FIGURE_CELLS if graph_rows and room >= FIGURE_CELLS + LEAST_BAR_CELLS else 0
    texts, bars = [], []
    for view in views:
        percent = meter.share(view.gpu.sample)
        severity = meter.level(percent)
        cell = _figure(view, _FIGURES[meter.name](view.gpu.sample))
        if cell and severity != "good":
            cell += [Span(" "), sign(severity)]
        bar = bar_span(percent, beside or room, severity)
        texts.append([*pad(cell, FIGURE_CELLS), bar] if cell and beside else cell)
        bars.append([bar])
    rows: list[Row] = [(meter.name, texts)]
    if not graph_rows and meter.bare:
        rows.append(("", bars))
        if meter.name == "utilization":
            histories = [sparkline(list(meter.history(view.gpu)), room, 100.0) for view in views]
            rows.append(("", [[Span(text, "muted")] for text in histories]))
    if graph_rows:
        # One scale for all, so that they can be compared.
        limits = [
            meter.limit(view.gpu.sample) or max(filter(None, meter.history(view.gpu)), default=0) for view in views
        ]
        top = max(limits)
        graphs = [graph(meter.history(view.gpu), room, graph_rows, top) for view in views]
        labels = axis(graph_rows, f"{top:.0f} {meter.unit}")
        rows += [
            (
                f"{label:>{LABEL_CELLS}}",
                [
                    [Span(lines[row], view.place if view.place is not None else "info")]
                    for view, lines in zip(views, graphs, strict=True)
                ],
            )
            for row, label in enumerate(labels)
        ]
    return rows


def _not_available(names: Sequence[str], width: int) -> list[Line]:
    lines: list[Line] = []
    text = "not available:"
    for number, name in enumerate(names):
        word = f" {name}{'' if number == len(names) - 1 else ','}"
        if len(text) + len(word) > width:
            lines.append(line(Span(text, "muted")))
            text = " "
        text += word
    return [*lines, line(Span(text, "muted"))] if names else []


def _cell(text: str) -> Cell:
    return [Span(text)] if text else []


def _figure_cell(name: str, sample: DeviceSample) -> Cell:
    text = _FIGURES[name](sample)
    return [Span(f"{text} ▲", "error")] if name == UNCORRECTED and sample.ecc_uncorrected else _cell(text)


def _bytes(count: int | None) -> Cell:
    return _cell(format_bytes(count)) if count is not None else []


def _reasons(sample: DeviceSample) -> list[Cell]:
    if sample.throttle_reasons is None:
        return []
    return [
        [Span(sanitize(reason, 40), "" if reason in HARMLESS_REASONS else "warning")]
        for reason in sample.throttle_reasons
    ] or [[Span("nothing")]]


def _processes(view: GpuView, room: int) -> list[Cell]:
    processes = view.gpu.processes
    if processes is None:
        return []
    cells: list[Cell] = []
    for process in processes:
        memory = format_bytes(process.memory_bytes) if process.memory_bytes is not None else ""
        if process.rank is not None:
            who = f"rank {process.rank} " if room >= LEAST_NAMED_CELLS else ""
            cells.append(_marked(view.places.get(process.rank), f"{who}{memory}"))
        elif process.pid is None:
            cells.append([Span(f"? {memory}")])
        else:
            # The table's footer shows whose it is.
            who = f" {sanitize(process.user, 12) or 'another'}" if room >= LEAST_NAMED_CELLS else ""
            cells.append([Span(f"!{who} {memory}", "warning") if view.ranks else Span(f" {who} {memory}")])
    if len(cells) > MOST_PROCESSES:
        cells[MOST_PROCESSES - 1 :] = [[Span(f"and {len(cells) - MOST_PROCESSES + 1} more")]]
    return cells or [[Span("none")]]


def _parts(view: GpuView, room: int) -> list[Cell]:
    cells: list[Cell] = []
    for part in view.gpu.sample.mig or ():
        owner = view.owner(part)
        name = mig_name(part)
        figures = share(part.memory_used_bytes, part.memory_total_bytes)
        mark = letter_span(view.places.get(owner.rank) if owner else None)
        if len(name) + len(figures) + 4 <= room:
            cells.append([mark, Span(f" {name}", "bold"), Span(f"  {figures}")])
        else:
            cells += [[mark, Span(f" {name}", "bold")], [Span(f"  {figures}")]]
    return cells


def _stacked(name: str, columns: list[list[Cell]]) -> list[Row]:
    height = max(map(len, columns), default=0)
    return [
        (name if row == 0 else "", [column[row] if row < len(column) else [] for column in columns])
        for row in range(height)
    ]


def foreign_processes(views: Sequence[GpuView], width: int) -> list[Line]:
    """Lists the processes that are not of this run, a line each."""
    lines: list[Line] = []
    for view in views:
        mark = "! " if view.ranks else "  "
        for process in view.gpu.foreign_processes[: 2 * MOST_PROCESSES]:
            words = [
                f"{mark}GPU {view.gpu.sample.index}",
                f"pid {process.pid}",
                sanitize(process.user, 32),
                sanitize(process.name, 40),
                format_bytes(process.memory_bytes) if process.memory_bytes is not None else "",
            ]
            lines.append(pad([Span(join_words(words), "warning" if view.ranks else "")], width))
    hidden = sum(len(view.gpu.foreign_processes) for view in views) - 2 * MOST_PROCESSES
    if hidden > 0:
        lines[2 * MOST_PROCESSES :] = [line(Span(f"  and {hidden} more", "muted"))]
    if any(view.gpu.has_unknown for view in views):
        text = "?  unknown owner: in a container the driver reports the host's pids"
        lines.append(pad(line(Span(text, "muted")), width))
    return lines
