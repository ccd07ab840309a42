"""The ranks' processes as the operating system sees them: the view of a run without GPUs."""

from __future__ import annotations

from tuiapp.state.devices.figures import cores, rate
from tuiapp.state.devices.gpu_rows import LABEL_CELLS
from tuiapp.state.devices.spans import Line, Span, bar_row, join_fitting, line, pad
from tuiapp.state.devices.view import letter_span
from tuiapp.state.rank_state import RankState
from tuiapp.state.run_state import RunState
from tuiapp.state.text import fit, format_bytes, plural, sparkline


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
    processes = {rank.pid or -rank.rank: rank for rank in sorted(ranks, key=lambda one: -one.rank)}
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
    places = {rank: place for place, (rank, _) in reversed(list(enumerate(state.devices())))}
    lines: list[Line] = []
    for rank in ranks:
        assert rank.process is not None
        place = places.get(rank.rank)
        busy = rank.process.cpu_percent / fair if rank.process.cpu_percent is not None else None
        memory = f"{format_bytes(rank.process.rss_bytes):>9}"
        spark = sparkline(list(rank.cpu), note - (0 if details else 11), 100.0 * fair) if details or note > 16 else ""
        own = state.process_per_device
        mark = letter_span(place if own else None)
        name = fit(f" rank {rank.rank} CPU" if own else " process CPU", LABEL_CELLS - len(mark.text))
        row = bar_row(
            (mark, name),
            busy,
            room,
            place if place is not None else "muted",
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
