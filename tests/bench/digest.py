"""What digest and status cost the supervisor: `python -m tests.bench.digest`, with ranks at 200 steps a second.

Feeds the supervisor's digest writer with what ranks report, and writes the digest as often as the supervisor does;
prints the processor time per second of the run, and that in the worst minute; and what a status takes, of which there
is one a second at most.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

from tests.bench.stream import STEPS_PER_SECOND, Stream
from tuiapp.trainers.contract.journal import JournalWriter
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.run.journal_keeper import DigestWriter, StatusWriter
from tuiapp.trainers.state.snapshot import load


def measure(ranks: int, minutes: int) -> None:
    """Print what some minutes of a run cost."""
    stream = iter(Stream(minutes * 60 * STEPS_PER_SECOND, ranks))
    with tempfile.TemporaryDirectory() as directory:
        run = RunDir(Path(directory))
        journal = JournalWriter(run.journal)
        digest = DigestWriter(run, journal)
        status = StatusWriter(run, journal, digest.state)
        writes = []
        add = journal.on_line
        assert add
        journal.on_line = None
        shares = []
        while batch := list(islice(stream, 60 * (6 * ranks + 1))):
            # What the journal itself costs does not count; the digest is written as far as the journal is.
            journal.append(event for event, _ in batch)
            began = time.process_time()
            for event, line in batch:
                add(event, line)
            digest.write_due()
            shares.append((time.process_time() - began) / 60)
            began = time.process_time()
            status.write(0.0)
            writes.append(time.process_time() - began)
        digest.write()
        began = time.process_time()
        assert load(run)
        took = time.process_time() - began
        print(
            f"{ranks} ranks, {minutes} minutes: {100 * sum(shares) / len(shares):.2f} % of a core, "
            f"{100 * max(shares):.2f} % in the worst minute; "
            f"digest {run.digest.stat().st_size / 1e6:.1f} MB, read in {took:.3f} s; "
            f"a status takes {1000 * statistics.median(writes):.2f} ms"
        )
        journal.close()


if __name__ == "__main__":
    for of_ranks in map(int, sys.argv[1:] or ("8", "64")):
        measure(of_ranks, 30)
