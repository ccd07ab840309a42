"""A writer of the journal that is killed at any moment: what it was told is on the disk is there."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tuiapp.trainers.contract.events import LogLine
from tuiapp.trainers.contract.journal import JournalReader

pytestmark = pytest.mark.nightly

KILLS = 100

WRITER = textwrap.dedent(
    """
    import os, sys
    from pathlib import Path
    from tuiapp.trainers.contract.events import LogLine
    from tuiapp.trainers.contract.journal import JournalWriter

    writer = JournalWriter(Path(sys.argv[1]))
    number, size = int(sys.argv[2]), 0
    while True:
        # Batches of all sizes, as a supervisor writes them; each third waits for the disk.
        size = size * 7 % 61 + 1
        batch = [LogLine(rank=0, stream="stdout", text=f"{number + i} " + "x" * (i * 37 % 900)) for i in range(size)]
        writer.append(batch, durable=size % 3 == 0)
        number += size
        assert writer.blocked is None
        # Acknowledged: whoever sent the batch may forget it.
        os.write(1, f"{number}\\n".encode())
    """
)


@pytest.mark.timeout(170)
def test_no_acknowledged_record_is_lost(tmp_path: Path) -> None:
    path, draw = tmp_path / "events.jsonl", random.Random(20)
    acknowledged = torn = 0
    for _ in range(KILLS):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(acknowledged)], stdout=subprocess.PIPE, bufsize=0
        )
        assert process.stdout is not None
        # Not before it writes, and then at any moment.
        said = process.stdout.readline()
        try:
            process.wait(draw.random() * 0.02)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        said += process.stdout.read()
        process.stdout.close()
        whole = said[: said.rfind(b"\n")].rsplit(b"\n", 1)[-1]
        torn += not path.read_bytes().endswith(b"\n")
        numbers = _numbers(path)
        assert len(numbers) >= int(whole)
        assert numbers == list(range(len(numbers)))
        # What was written and not acknowledged may stand there: the next writer goes on after it.
        acknowledged = len(numbers)
    print(f"\n{KILLS} kills of the writer: {acknowledged:,} records, none lost; {torn} torn tails cut")


def _numbers(path: Path) -> list[int]:
    reader, seqs, numbers = JournalReader(path), [], []
    while events := reader.read():
        for event in events:
            assert isinstance(event, LogLine)
            seqs.append(event.seq)
            numbers.append(int(event.text.split(" ", 1)[0]))
    assert seqs == list(range(1, len(seqs) + 1))
    return numbers
