"""Which checkpoints the journal covers: it holds their commit, and every rank's steps up to them.

Ranks that outlive their supervisor commit checkpoints that are not in the journal. Resuming from one of those would
leave a gap in the curve. A journal may have many gigabytes, and what matters is near its end: it is read backwards.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from trainers.config.files import open_regular
from trainers.contract.events import Checkpoint, Metrics, RunStarted, decode
from trainers.contract.journal import MAX_LINE_BYTES, lines_back

_DECODED = (b'{"type":"metrics",', b'{"type":"checkpoint",', b'{"type":"run-started",')
"""Starts of the lines that are decoded: the type comes first on every line."""


def covered_steps(journal: Path, checkpoints: Mapping[int, int]) -> Iterator[int]:
    """Yields the checkpoints that the journal covers, newest first, reading no further than needed for each.

    That is in the history in force: all of the last attempt, and of each earlier attempt the steps up to the one from
    which a later one resumed, which counts as covered: resuming from it again loses nothing more. `checkpoints`: step →
    number of ranks, or devices, that the run had then.
    """
    undecided = dict(checkpoints)
    committed: set[int] = set()
    reached: dict[int, int] = {}
    for event in _events_backwards(journal):
        if isinstance(event, RunStarted):
            if event.resumed_from in undecided:
                yield event.resumed_from
            undecided = {step: ranks for step, ranks in undecided.items() if step < event.resumed_from}
            committed.clear()
            reached.clear()
        elif isinstance(event, Checkpoint):
            committed.add(event.step)
        elif event.is_training:
            reached.setdefault(event.rank, event.last_step)
            short = [step for step, ranks in undecided.items() if event.rank < ranks and event.last_step < step]
            for step in short:
                # Rank 0 reports a checkpoint after the steps that lead to it: there is none further back.
                if reached[event.rank] < step or (event.rank == 0 and step not in committed):
                    del undecided[step]
        for step in sorted(committed & undecided.keys(), reverse=True):
            if all(reached.get(rank, -1) >= step for rank in range(undecided[step])):
                del undecided[step]
                yield step
        if not undecided:
            return


def _events_backwards(journal: Path) -> Iterator[RunStarted | Checkpoint | Metrics]:
    try:
        fd = open_regular(journal)
    except OSError:
        return
    try:
        for line in lines_back(fd, MAX_LINE_BYTES):
            if line.startswith(_DECODED) and isinstance(event := decode(line), RunStarted | Checkpoint | Metrics):
                yield event
    except OSError:
        return
    finally:
        os.close(fd)
