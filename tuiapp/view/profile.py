"""Where the time of profiled steps went, in lines of text: the ranks side by side, and what took most on one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise

import msgspec

from tuiapp.trainers.contract.events import COMMUNICATION, COPIES, DATA, HOST, KERNELS, Operation, Profile, StepMemory
from tuiapp.trainers.state.text import format_bytes, format_percent, format_seconds, join_words, sanitize
from tuiapp.view.table import Column, plain_table

GLYPHS = {KERNELS: "█", COMMUNICATION: "▓", COPIES: "▒", DATA: "░", HOST: "·"}
"""What a bar has for a kind of work: they differ without colours too."""

TITLES = {KERNELS: "kernels", COMMUNICATION: "comm.", COPIES: "copies", DATA: "data", HOST: "host"}

LEAST_BAR, MOST_BAR = 10, 60
"""Cells of a rank's bar."""


def latest(profiles: Mapping[int, Profile]) -> list[Profile]:
    """Returns the profiles of the steps that were profiled last, in the order of ranks."""
    last = max((profile.time for profile in profiles.values()), default=0.0)
    first = next((profile.step for profile in profiles.values() if profile.time == last), 0)
    return [profile for _, profile in sorted(profiles.items()) if profile.step == first]


def heading(profiles: Sequence[Profile]) -> str:
    """Returns which steps these are, and what they took."""
    first, count = profiles[0].step, profiles[0].steps
    steps = f"steps {first:,} to {first + count - 1:,}" if count > 1 else f"step {first:,}"
    return join_words([steps, f"{format_seconds(profiles[0].seconds / count)} a step, with the profiler's own cost"])


def rank_lines(profiles: Sequence[Profile], width: int) -> list[str]:
    """Returns a table of the ranks, each with a bar, in at most so many cells."""
    columns: list[Column[Profile]] = [Column("rank", 4, lambda profile: str(profile.rank)), *map(_share, GLYPHS)]
    if any(profile.peak_bytes for profile in profiles):
        columns.append(Column("memory", 9, lambda profile: format_bytes(profile.peak_bytes)))
    lines = plain_table(columns, profiles, width)
    widest = max(map(len, lines))
    cells = min(MOST_BAR, width - widest - 2)
    if cells < LEAST_BAR:
        return lines
    bars = ["", *(_bar(profile, cells) for profile in profiles)]
    return [f"{line.ljust(widest)}  {bar}".rstrip() for line, bar in zip(lines, bars, strict=True)]


def _share(kind: str) -> Column[Profile]:
    return Column(TITLES[kind], 7, lambda profile: format_percent(_part_of(profile, kind)))


def _bar(profile: Profile, cells: int) -> str:
    reached = accumulate(_part_of(profile, kind) for kind in GLYPHS)
    ends = [0, *(min(cells, round(cells * part)) for part in reached)]
    return "".join(glyph * (end - start) for glyph, (start, end) in zip(GLYPHS.values(), pairwise(ends), strict=True))


def _part_of(profile: Profile, kind: str) -> float:
    """Returns the part of the steps' time that a kind of work took."""
    return profile.spent.get(kind, 0.0) / max(profile.seconds, 1e-9)


def memory_lines(profiles: Sequence[Profile]) -> Iterator[str]:
    """Yields what a compiled step takes of each device, and the most that its arrays have taken on one."""
    # Devices of one program: each has the same part of the step.
    if memory := profiles[0].step_memory:
        yield f"{format_bytes(memory.total)} of each device for the compiled step:"
        yield f"  {join_words(_parts(memory))}"
    peaks = [(profile.process_peak_bytes, profile.rank) for profile in profiles if profile.process_peak_bytes]
    if peaks:
        most, rank = max(peaks, key=lambda peak: (peak[0], -peak[1]))
        yield f"{format_bytes(most)} at most since the run's start, on rank {rank}"


def _parts(memory: StepMemory) -> Iterator[str]:
    new = memory.outputs - memory.aliased
    yield f"arguments {format_bytes(memory.arguments)}"
    yield f"new outputs {format_bytes(new)}"
    yield f"temporary {format_bytes(memory.temporary)}"


def legend() -> str:
    """Returns which sign of a bar is what."""
    return "  ".join(f"{glyph} {kind}" for kind, glyph in GLYPHS.items())


def operation_lines(profile: Profile, width: int) -> list[str]:
    """Returns a table of what took most of a rank's time, each for one step."""
    seconds = max(profile.seconds, 1e-9)
    columns: list[Column[Operation]] = [
        Column("time", 9, lambda operation: format_seconds(operation.seconds / profile.steps)),
        Column("share", 7, lambda operation: format_percent(operation.seconds / seconds, 1)),
        Column("calls", 7, lambda operation: f"{operation.calls / profile.steps:,.4g}"),
        Column("", 10, lambda operation: sanitize(operation.name), left=True, most=max(10, width - 29)),
    ]
    return plain_table(columns, profile.largest, width)


def trace_lines(profile: Profile) -> list[str]:
    """Returns where a rank's trace is, and what opens it."""
    if not profile.trace:
        return ["trace: this rank wrote none"]
    where = f"trace{f' on node {profile.node}' if profile.node else ''}: {sanitize(profile.trace)}"
    return [where, "Open it at ui.perfetto.dev."]


def lines(profiles: Sequence[Profile], width: int, rank: int | None = None) -> Iterator[str]:
    """Yields all lines of a profile: of the operations those of one rank, by default the first."""
    chosen = next((profile for profile in profiles if profile.rank == rank), profiles[0])
    yield from (heading(profiles), "", *rank_lines(profiles, width), "", legend(), "")
    if memory := list(memory_lines(profiles)):
        yield from (*memory, "")
    yield f"Largest operations of rank {chosen.rank}, per step"
    yield from (*operation_lines(chosen, width), "")
    yield from trace_lines(chosen)


def facts(profiles: Sequence[Profile]) -> list[dict[str, object]]:
    """Returns all that a profile has, as plain values."""
    return [
        {
            "rank": profile.rank,
            "step": profile.step,
            "steps": profile.steps,
            "seconds": profile.seconds,
            "spent": profile.spent,
            "largest": [
                {"name": operation.name, "seconds": operation.seconds, "calls": operation.calls}
                for operation in profile.largest
            ],
            "peak_bytes": profile.peak_bytes,
            "process_peak_bytes": profile.process_peak_bytes,
            "step_memory": (memory := profile.step_memory)
            and {**msgspec.structs.asdict(memory), "total": memory.total},
            "trace": profile.trace,
        }
        for profile in profiles
    ]
