"""What is said of queued runs: their place, why they wait, when they are expected to start, and what they cost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tuiapp.trainers.config.files import no_space
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import DAMAGED, Waiting, find_waiting
from tuiapp.trainers.experiments.pace import Cost
from tuiapp.trainers.experiments.queue import Outlook, keeper_trouble, outlook
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.trainers.state.text import format_duration


def with_places(infos: Sequence[RunInfo]) -> list[RunInfo]:
    """Returns runs, those that wait in the queue with their place, and why and how long they wait."""
    queue = [info for info in infos if info.waiting is not None]
    if not queue:
        return [*infos]
    outlooks, trouble = dict[str, Outlook](), dict[Path, str]()
    for directory in {info.directory.path.parent for info in queue}:
        outlooks |= outlook(directory)
        trouble[directory] = queue_trouble(directory)
    queue.sort(key=lambda info: (info.waiting.rank if info.waiting else (), info.directory.run_id))
    updated = {}
    for index, info in enumerate(queue, start=1):
        run = info.directory
        reason = why_it_waits(info.waiting, outlooks.get(run.run_id), trouble[run.path.parent]) or info.reason
        updated[run] = replace(info, place=index, reason=reason)
    return [updated.get(info.directory, info) for info in infos]


def describe_place(run: RunDir) -> str:
    """Says which place a waiting run has in the queue, why it waits, and when it is expected to start."""
    runs_dir, queue = run.path.parent, find_waiting(run.path.parent)
    number = next((n for n, entry in enumerate(queue, start=1) if entry.run.run_id == run.run_id), None)
    if number is None:
        return ""
    expected = outlook(runs_dir).get(run.run_id)
    reason = why_it_waits(queue[number - 1].waiting, expected, queue_trouble(runs_dir))
    return ", ".join(filter(None, (f"number {number} of {len(queue)}", reason)))


def queue_trouble(runs_dir: Path) -> str:
    """Says why nothing that waits in a directory starts; "" if nothing is in its way."""
    return no_space(runs_dir) or keeper_trouble(runs_dir)


def why_it_waits(waiting: Waiting | None, expected: Outlook | None, trouble: str = "") -> str:
    """Says why a run waits, and when it is expected to start."""
    if waiting is DAMAGED:
        return "its waits.json cannot be read; it can only be cancelled"
    if waiting is not None and waiting.held:
        return "held"
    if trouble or expected is None:
        return trouble
    start = f"expected to start {clock(expected.start)}" if expected.start else ""
    return ", ".join(filter(None, (expected.reason, start)))


def cost_words(cost: Cost | None, *, at_most: bool = False) -> str:
    """Says how long runs will take, what they cost, and when they end; "" if that is not known."""
    if cost is None:
        return ""
    hours = f", {cost.gpu_hours:.2g} GPU hours" if cost.gpu_hours else ""
    how = "at most" if at_most else "about"
    return (
        f"{how} {format_duration(cost.seconds)}{hours}, until {clock(time.time() + cost.seconds)}, as earlier runs took"
    )


def clock(moment: float) -> str:
    """Formats a Unix time of the next days: "19:05", or "Thu 19:05" if that is not today."""
    local = time.localtime(moment)
    return time.strftime("%H:%M" if local.tm_yday == time.localtime().tm_yday else "%a %H:%M", local)
