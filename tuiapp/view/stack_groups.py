"""The Python stacks of a run that makes no progress: ranks whose main threads are at the same call are one group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainers.contract.events import Stacks
from trainers.state.text import sanitize_lines


@dataclass(frozen=True, slots=True)
class StackGroup:
    ranks: list[int]  # ascending
    main: list[str]  # lines of the main thread's frames, innermost first
    others: list[str]  # lines of the first rank's other threads


def group_stacks(stacks: Mapping[int, Stacks], first: int | None = None) -> list[StackGroup]:
    """Returns the group of rank `first`, then the others, the smallest first: the odd ones are on top."""
    groups: dict[tuple[str, ...], StackGroup] = {}
    for rank in sorted(stacks):
        main, others = _split(sanitize_lines(stacks[rank].text.rstrip()))
        groups.setdefault(tuple(main), StackGroup([], main, others)).ranks.append(rank)
    return sorted(groups.values(), key=lambda group: (first not in group.ranks, len(group.ranks)))


def _split(lines: list[str]) -> tuple[list[str], list[str]]:
    """Splits what `faulthandler` wrote: the main thread is the last."""
    starts = [number for number, line in enumerate(lines) if line.startswith(("Thread 0x", "Current thread 0x"))]
    last = starts[-1] if starts else -1
    return lines[last + 1 :], "\n".join(lines[: max(0, last)]).rstrip().splitlines()
