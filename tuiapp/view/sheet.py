"""A study as it is shown: one table, in the terminal, as CSV and Markdown, and on a report's page."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from tuiapp.trainers.state.objective import Spread
from tuiapp.trainers.state.text import MISSING, format_percent, format_rate, plural, sanitize
from tuiapp.view.measured import Measured, whole
from tuiapp.view.run_list import state
from tuiapp.view.table import Column, plain_table

BUSY = 0.1
"""Share of the processors that other programs have, from which on it is said."""
MOST_NAMED = 6
"""Runs that do not count."""


@dataclass(frozen=True, slots=True)
class Sheet:
    title: str
    heads: tuple[str, ...]
    cells: list[tuple[str, ...]]
    """A row's, as they are shown."""
    facts: list[dict[str, object]]
    """The rows as plain values."""
    notes: list[str]
    """What the figures are, and what is missing."""

    def lines(self, width: int = sys.maxsize) -> list[str]:
        """Returns the table as text."""

        def column(place: int) -> Column[tuple[str, ...]]:
            cells = max(len(row[place]) for row in (self.heads, *self.cells))
            return Column(self.heads[place].upper(), cells, lambda row: row[place], place, left=place == 0)

        return plain_table([column(place) for place in range(len(self.heads))], self.cells, width)

    def to_csv(self) -> str:
        """Returns the plain values."""
        text = io.StringIO()
        writer = csv.DictWriter(text, list(self.facts[0]) if self.facts else ["study"], lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: "" if value is None else value for name, value in row.items()} for row in self.facts)
        return text.getvalue()

    def to_markdown(self) -> str:
        """Returns the table with its notes."""
        rows = [self.heads, ("---",) * len(self.heads), *self.cells]
        table = "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows)
        notes = "\n".join(f"- {note}" for note in self.notes)
        return f"## {self.title}\n\n{table}\n\n{notes}\n"


def rate_words(found: Spread | None) -> str:
    """Formats a median rate."""
    return format_rate(found.median) if found else MISSING


def spread_words(found: Spread | None) -> str:
    """Formats half the range over the median: "± 3.1 %"; of a single run it is not known."""
    return f"± {format_percent(found.half, 1)}" if found and found.size > 1 else MISSING


def counted_words(runs: Sequence[Measured]) -> str:
    """Formats how many of some runs count: "3", "2 of 3"."""
    counted = len(whole(runs))
    return str(counted) if counted == len(runs) else f"{counted} of {len(runs)}"


def busy_notes(runs: Sequence[Measured]) -> list[str]:
    """Says how much other programs had of the processors, if that is enough to matter."""
    known = [run.others for run in whole(runs) if run.others is not None]
    if not known or max(known) < BUSY:
        return []
    from_, to = format_percent(min(known)), format_percent(max(known))
    return [
        f"other programs had {from_} to {to} of the processors during these runs: the figures are of a busy machine"
    ]


def missing_notes(runs: Sequence[Measured]) -> list[str]:
    """Says which runs do not count, and why."""
    notes = [
        f"{run.info.directory.run_id} does not count: {state(run.info)}{run.info.reason and f', {run.info.reason}'}"
        for run in runs
        if not run.is_whole
    ]
    named = notes[:MOST_NAMED]
    return [sanitize(note, 300) for note in named] + (
        [f"{plural(len(notes) - MOST_NAMED, 'more run')} not counted"] if notes[MOST_NAMED:] else []
    )


def run_facts(run: Measured) -> dict[str, object]:
    """Returns a run's figures, ready for JSON."""
    return {
        "run": run.info.directory.run_id,
        "status": run.info.status,
        "backend": run.backend,
        "devices": run.devices,
        "throughput": run.throughput,
        "first_step_s": run.first_step_s,
        "waiting": run.waiting,
        "data_wait": run.data_wait,
        "memory_bytes": run.memory_bytes,
        "others": run.others,
        "loss": run.info.summary.loss,
        "test_accuracy": run.info.summary.test_accuracy,
    }
