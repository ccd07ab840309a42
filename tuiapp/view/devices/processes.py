"""Processes: the ranks' own, as a view without GPUs shows them, and a list of those of the machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Literal, NamedTuple, TypeAlias

from tuiapp.trainers.state.rank_state import RankState
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.text import fit, format_bytes, join_words, plural, sanitize, sparkline
from tuiapp.view.devices.drawing import Line, Role, Span, bar_row, cores, join_fitting, line, pad, rate
from tuiapp.view.devices.view import LABEL_CELLS, GpuView, device_places, letter_span
from tuiapp.view.table import GAP, Column, fitting, in_order, nonempty, or_missing


def note_cells(width: int) -> int:
    """Returns the cells to the right of the bars of processes and of the host."""
    return 24 if width >= 60 else 13


def bar_room(width: int) -> int:
    """Returns the cells of the bars of processes and of the host; 0 where the figures take the whole width."""
    room = width - LABEL_CELLS - note_cells(width) - 10
    return room if room > 1 else 0


def rank_processes(state: RunState, node: int = 0) -> list[RankState]:
    """Returns one rank per sampled process of a node: a process may own several devices."""
    ranks = [rank for rank in state.ranks.values() if state.node_of(rank.rank) == node]
    processes = {rank.pid or -rank.rank: rank for rank in sorted(ranks, key=lambda rank: -rank.rank)}
    return sorted((rank for rank in processes.values() if rank.process), key=lambda rank: rank.rank)


def process_rows(state: RunState, width: int, *, details: bool, node: int = 0) -> list[Line]:
    """Returns a row per process of a node: its use of its share of the cores.

    `details` adds one of memory, threads, traffic.
    """
    ranks = rank_processes(state, node)
    host, _ = state.host_of(node)
    # On the scale of the host's row: 100 % is its whole share of the cores.
    fair = max(1, (host.cpu_cores if host else 1) // max(1, len(ranks)))
    note = note_cells(width)
    room = bar_room(width)
    places = device_places(state)
    lines: list[Line] = []
    for rank in ranks:
        assert rank.process is not None
        device = places.get(rank.rank)
        busy = rank.process.cpu_percent / fair if rank.process.cpu_percent is not None else None
        memory = f"{format_bytes(rank.process.rss_bytes):>9}"
        spark = sparkline(list(rank.cpu), note - (0 if details else 11), 100.0 * fair) if details or note > 16 else ""
        per_device = state.process_per_device
        mark = letter_span(device if per_device else None)
        name = fit(f" rank {rank.rank} CPU" if per_device else " process CPU", LABEL_CELLS - len(mark.text))
        row = bar_row(
            (mark, name),
            busy,
            room,
            device if device is not None else "muted",
            Span(spark if details or not spark else f"{spark}  ", "muted"),
            "" if details else memory,
            cells=6,
        )
        lines.append(pad(row, width))
        if details:
            lines.append(pad(_details(rank, width, fair if host else None), width))
    return lines


def _details(rank: RankState, width: int, fair: int | None) -> Line:
    process = rank.process
    assert process is not None
    words = [format_bytes(process.rss_bytes)]
    if process.shared_bytes is not None:
        words[0] += f" ({format_bytes(process.shared_bytes)} shared)"
    if process.cpu_percent is not None and fair is not None:
        words.append(f"{cores(process.cpu_percent)}/{plural(fair, 'core')}")
    if process.read_bytes_per_s is not None or process.write_bytes_per_s is not None:
        words.append(f"reads {rate(process.read_bytes_per_s)}")
        words.append(f"writes {rate(process.write_bytes_per_s)}")
    words.append(plural(process.threads, "thread"))
    return line("  ", Span(join_fitting(words, width - 2), "muted"))


ProcessKey: TypeAlias = Literal["rank", "GPU memory", "CPU %", "memory", "pid"]

PROCESS_KEYS: tuple[ProcessKey, ...] = ("rank", "GPU memory", "CPU %", "memory", "pid")
"""Columns that processes are sorted by, in the order of the sort key: the run's own come first, or the largest."""

LEAST_COMMAND_CELLS = 16
MOST_ABOVE = 8
"""Most processes that are followed from one to those that started it."""
SORTS = "o sorts"
HISTORY_CELLS = 24


class Seen(NamedTuple):
    """What the operating system shows of a process."""

    parent: int
    user: str
    cpu_percent: float | None  # 100 is one core; None when it is seen for the first time
    memory_bytes: int
    command: str
    run: str = ""
    """What the run is called whose supervisor it is."""


@dataclass(slots=True)
class ProcessRow:
    pid: int
    rank: int | None = None  # None: not the run's
    place: int | None = None  # index of its device, which gives the letter
    role: str = ""  # in the run: "rank 3", "its worker", "supervisor"; else ""
    run: str = ""  # another run that has it
    gpus: list[int] = field(default_factory=list)
    shares: bool = False  # on one of the run's GPUs, but not of the run
    gpu_bytes: int | None = None
    user: str = ""
    cpu_percent: float | None = None
    memory_bytes: int | None = None
    threads: int | None = None
    read_bytes_per_s: float | None = None
    write_bytes_per_s: float | None = None
    history: Sequence[float | None] = ()  # of its CPU, in percent of a core
    command: str = ""


def process_rows_of(
    state: RunState, views: Sequence[GpuView], seen: Mapping[int, Seen], sort: ProcessKey, node: int = 0
) -> list[ProcessRow]:
    """Returns all known processes of a node, sorted; `seen` are those of this machine, if it is the node."""
    rows = {pid: ProcessRow(pid) for pid in seen}
    places = device_places(state)
    for rank in rank_processes(state, node):
        if rank.pid is not None:
            row = rows.setdefault(rank.pid, ProcessRow(rank.pid))
            row.rank, row.role, row.history = rank.rank, f"rank {rank.rank}", list(rank.cpu)
            if state.process_per_device:
                row.place = places.get(rank.rank)
            else:
                row.role = "all ranks"
            if (sample := rank.process) is not None:
                row.cpu_percent, row.memory_bytes, row.threads = sample.cpu_percent, sample.rss_bytes, sample.threads
                row.read_bytes_per_s, row.write_bytes_per_s = sample.read_bytes_per_s, sample.write_bytes_per_s
    if node == 0 and state.started is not None and state.started.pid in seen:
        rows[state.started.pid].role = "supervisor"
    for view in views:
        for process in view.gpu.processes or ():
            if process.pid is None:
                continue
            row = rows.setdefault(process.pid, ProcessRow(process.pid))
            row.gpus.append(view.gpu.sample.index)
            row.gpu_bytes = (row.gpu_bytes or 0) + (process.memory_bytes or 0)
            row.user, row.command = sanitize(process.user, 32), sanitize(process.name, 40)
            if process.rank is None:
                row.shares |= bool(view.ranks)
            elif row.rank is None:
                row.rank, row.place, row.role = process.rank, places.get(process.rank), f"rank {process.rank}"
    for pid, entry in seen.items():
        row = rows[pid]
        row.user, row.command, row.memory_bytes = entry.user, entry.command, entry.memory_bytes
        row.cpu_percent = entry.cpu_percent if entry.cpu_percent is not None else row.cpu_percent
        if not row.role:
            # A rank may have started it, as a data loader.
            above = (rows[parent] for parent in _line_of(entry.parent, seen))
            owner = next((parent for parent in above if parent.role.startswith(("rank", "all"))), None)
            if owner is not None:
                row.rank, row.place, row.role = owner.rank, owner.place, f"of {owner.role}"
            else:
                row.run = next((seen[parent].run for parent in _line_of(pid, seen) if seen[parent].run), "")
    column = next(column for column in _COLUMNS if column.title == sort)
    return in_order(sorted(rows.values(), key=_by_rank), column)


def _line_of(pid: int, seen: Mapping[int, Seen]) -> Iterator[int]:
    """Yields a process and those above it, as far as they are seen."""
    for _ in range(MOST_ABOVE):
        if pid not in seen:
            return
        yield pid
        pid = seen[pid].parent


def _by_rank(row: ProcessRow) -> tuple[float, ...]:
    group = 0 if row.role else 1 if row.gpus else 2 if row.run else 3
    number = row.rank if row.rank is not None else 1 << 30
    return group, number, row.role.startswith("of"), -(row.gpu_bytes or 0), -(row.cpu_percent or 0.0), row.pid


def _history(row: ProcessRow) -> str:
    top = max(100.0, *(value or 0.0 for value in row.history), 0.0)
    return sparkline(row.history, HISTORY_CELLS, top) if row.history else ""


def _rate(bytes_per_s: float | None) -> str:
    return rate(bytes_per_s) if bytes_per_s is not None else ""


_COLUMNS: tuple[Column[ProcessRow], ...] = (
    Column("pid", 8, lambda row: str(row.pid), key=lambda row: row.pid),
    Column("rank", 14, lambda row: row.role, left=True, key=lambda row: 0),
    Column("run", 20, lambda row: row.run, 3, left=True),
    Column("user", 10, lambda row: row.user, 4, left=True),
    Column("GPU", 6, lambda row: ",".join(map(str, row.gpus)), 3, left=True),
    Column(
        "GPU memory",
        12,
        lambda row: format_bytes(row.gpu_bytes) if row.gpus else "",
        2,
        key=lambda row: row.gpu_bytes or 0,
        falls=True,
    ),
    Column(
        "CPU %",
        7,
        lambda row: or_missing(row.cpu_percent, "{:.0f}".format),
        1,
        key=lambda row: row.cpu_percent or 0.0,
        falls=True,
    ),
    Column(
        "memory", 9, lambda row: format_bytes(row.memory_bytes), 2, key=lambda row: row.memory_bytes or 0, falls=True
    ),
    Column("threads", 7, lambda row: str(row.threads) if row.threads is not None else "", 8),
    Column("reads", 10, lambda row: _rate(row.read_bytes_per_s), 7),
    Column("writes", 10, lambda row: _rate(row.write_bytes_per_s), 7),
    Column("CPU history", HISTORY_CELLS, _history, 6, left=True),
)


def describe(row: ProcessRow) -> str:
    """Says in a line which process it is."""
    gpus = f"GPU {','.join(map(str, row.gpus))} {format_bytes(row.gpu_bytes)}" if row.gpus else ""
    return join_words(
        [str(row.pid), row.user, row.run and f"run {row.run}", row.role, gpus, fit(row.command, 80).rstrip()]
    )


def sort_keys(rows: Sequence[ProcessRow]) -> list[ProcessKey]:
    """Returns the keys that sort these: without a run there are no ranks, and perhaps no GPUs."""
    absent: set[ProcessKey] = set()
    if not any(row.role for row in rows):
        absent.add("rank")
    if not any(row.gpus for row in rows):
        absent.add("GPU memory")
    return [key for key in PROCESS_KEYS if key not in absent]


INDENT = 9
"""Cells to the left of a command that stands beneath its process."""


def spilled(rows: Sequence[ProcessRow], width: int) -> int:
    """Returns the lines beneath those of the run's own processes that have their commands."""
    _, _, room = _layout(rows, width, None)
    return sum(len(_beneath(row, width, room)) for row in rows)


def _layout(
    rows: Sequence[ProcessRow], width: int, sort: ProcessKey | None
) -> tuple[Sequence[Column[ProcessRow]], str, int]:
    """Returns the columns, their heading, and the cells of a command."""
    shown = fitting(nonempty(_COLUMNS, rows), width - 2 - LEAST_COMMAND_CELLS)
    titles = (column.align(f"{column.title} ▾" if column.title == sort else column.title) for column in shown)
    heading = GAP.join(titles)
    return shown, heading, width - len(heading) - 4


def _beneath(row: ProcessRow, width: int, room: int) -> list[str]:
    """Returns the command of one of the run's own processes that needs more than its column."""
    if len(row.command) <= room or not (row.role or row.gpus):
        return []
    return wrap(row.command, max(LEAST_COMMAND_CELLS, width - INDENT), break_on_hyphens=False)


def process_table(rows: Sequence[ProcessRow], width: int, most: int, sort: ProcessKey) -> list[Line]:
    """Returns a heading and at most `most` lines of processes, the last one counting those left out.

    The commands of the run's own are whole.
    """
    shown, heading, room = _layout(rows, width, sort)
    if not shown:
        return []
    lines = [line(Span(f"  {heading}  {'command':<{room - len(SORTS)}}{SORTS}", "muted"))]
    listed = max(1, most - spilled(rows, width))
    cut = rows if len(rows) <= listed else rows[: max(1, listed - 1)]
    for row in cut:
        mark = Span("!", "warning") if row.shares else letter_span(row.place)
        cells = GAP.join(column.draw(row) for column in shown)
        beneath = _beneath(row, width, room)
        first = "" if beneath else row.command
        role: Role = "bold" if row.role else "warning" if row.shares else ""
        # The pid leaves room for a second letter.
        lines.append(pad(line(mark, Span(f" {cells}  {first}"[len(mark.text) - 1 :], role)), width))
        lines += [pad(line(Span(" " * INDENT + part, role)), width) for part in beneath]
    if len(cut) < len(rows):
        lines.append(line(Span(f"  and {len(rows) - len(cut)} more", "muted")))
    return lines
