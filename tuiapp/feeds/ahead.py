"""A process that reads a long journal while the dashboard's own one still imports what it draws with.

Reading 23 MB takes half a second of processor time; most machines have a second core that has nothing to do meanwhile.
This module must be fast to import: it comes before all that takes long.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

LONG_BYTES = 4 << 20
"""From this size on a journal is read ahead: to start a process costs as much as to read so many bytes."""

LENGTH_BYTES = 4
"""In front of each message."""

MAX_MESSAGE_BYTES = 256 << 20
"""Of a message; what claims to be longer is none."""

PIPE_BYTES = 1 << 20
"""Room in the pipe: the reader need not wait for the dashboard after every 64 KiB."""

PATIENCE_S = 10.0
"""A reader that says nothing for so long is given up."""

END_S = 1.0
"""How long to wait for the end of a process that was killed: one that hangs in a read from a dead file server stays."""


class ReadAhead:
    """Reads a journal in a process of its own. It holds the process until `close`, or until all messages are taken.

    Args:
        journal: The journal's file.
        command: What reads it; its path is added.

    Raises:
        OSError: no process can be started.
    """

    def __init__(self, journal: Path, command: tuple[str, ...] = ("-P", "-m", "tuiapp.feeds.ahead_worker")) -> None:
        quiet = subprocess.DEVNULL
        # A session of its own: the terminal's Ctrl-C is for the dashboard. It ends when its stdout is closed.
        self._process = subprocess.Popen(
            [sys.executable, *command, str(journal)],
            stdin=quiet, stdout=subprocess.PIPE, stderr=quiet, bufsize=0, start_new_session=True,
            pipesize=PIPE_BYTES,
        )  # fmt: skip
        self.pid = self._process.pid

    def messages(self) -> Iterator[bytearray]:
        """What the process says, for `ahead_worker.decoder`; ends with it, whatever its end."""
        stdout = self._process.stdout
        assert stdout
        with stdout:
            while header := _read(stdout.fileno(), LENGTH_BYTES):
                length = int.from_bytes(header, "big")
                message = _read(stdout.fileno(), length) if length <= MAX_MESSAGE_BYTES else None
                if not message:
                    break
                yield message
        self.close()

    def close(self) -> None:
        """End the process, if it has not ended."""
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)


def read_ahead(journal: Path) -> ReadAhead | None:
    """Begin to read a journal, if it is long and there is a second core to do it; else None."""
    try:
        if journal.stat().st_size < LONG_BYTES or len(os.sched_getaffinity(0)) < 2:
            return None
        return ReadAhead(journal)
    except OSError:
        return None


def _read(fd: int, size: int) -> bytearray | None:
    """So many bytes; None where the other end is closed before, or says nothing any more."""
    data = bytearray(size)
    rest, until = memoryview(data), time.monotonic() + PATIENCE_S
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while rest:
        if not poll.poll(max(0.0, until - time.monotonic()) * 1e3):
            return None
        got = os.readv(fd, [rest])
        if not got:
            return None
        rest = rest[got:]
    return data
