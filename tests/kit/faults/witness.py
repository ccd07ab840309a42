"""Keeps, beside the journal, which step each rank has sent last: what the journal must hold at least."""

from __future__ import annotations

import os

import msgspec

from tuiapp.trainers.contract.events import Metrics, decode
from tuiapp.trainers.rank.reporter import Reporter


def watch(directory: str) -> None:
    """Have this process's reporter write down what it has sent."""
    send = Reporter._write

    def sent(self: Reporter, data: bytes) -> None:
        send(self, data)
        for line in data.splitlines():
            if b'"type":"metrics"' not in line:
                continue
            try:
                event = decode(line)
            except msgspec.DecodeError:
                continue
            if isinstance(event, Metrics):
                fd = os.open(os.path.join(directory, str(event.rank)), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                os.write(fd, f"{event.last_step}\n".encode())
                os.close(fd)

    Reporter._write = sent  # type: ignore[method-assign]
