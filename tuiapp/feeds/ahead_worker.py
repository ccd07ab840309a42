"""Reads a journal to its present end for a dashboard that only starts: `python -m tuiapp.feeds.ahead_worker JOURNAL`.

What it has read goes to its stdout in messages, each after its length in four bytes: events as they are, but batches of
steps put together. It ends with the journal, or when nobody takes what it says.

It must be fast to import, too: no numpy here.
"""

from __future__ import annotations

import gc
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec

from trainers.contract.events import AnyEvent, Evaluation, FrameworkMemory, HostSample, LogLine, RankSample, Steps
from trainers.contract.journal import JournalReader
from tuiapp.feeds.ahead import LENGTH_BYTES
from tuiapp.state.digest import Digest, digested

Told: TypeAlias = AnyEvent | Digest
"""An event, or a digest of many."""

MESSAGE_BYTES = 2 << 20
"""How much of a journal a message tells of: the more, the more batches come together."""

MAX_WAITING = 32
"""Messages, of half a megabyte each, and their lengths that wait while the dashboard has no time yet."""

INDEPENDENT = (RankSample, HostSample, LogLine, Evaluation, FrameworkMemory)
"""Events that come to the same before batches of steps and after them; before any other those batches are told."""


class Message(msgspec.Struct, frozen=True, array_like=True):
    """A part of a journal."""

    offset: int
    """Where it ends."""
    told: list[Told]


decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def digest(events: Iterable[AnyEvent]) -> Iterator[Told]:
    """The same events, batches of steps put together."""
    steps: list[Steps] = []
    for event in events:
        if isinstance(event, Steps):
            steps.append(event)
        elif isinstance(event, INDEPENDENT):
            yield event
        else:
            yield from digested(steps)
            steps = []
            yield event
    yield from digested(steps)


def messages(reader: JournalReader, end: int) -> Iterator[bytes]:
    """What to say of a journal up to its present end."""
    while reader.offset < end:
        until = min(end, reader.offset + MESSAGE_BYTES)
        events: list[AnyEvent] = []
        while reader.offset < until and (read := reader.read()):
            events += read
        if not events:
            return
        yield msgspec.msgpack.encode(Message(reader.offset, list(digest(events))))


def main(journal: str) -> None:
    """Write all there is of a journal to stdout."""
    # The dashboard is gone: nobody wants to hear of it.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    # Nothing that is made here has cycles.
    gc.disable()
    waiting: queue.Queue[bytes] = queue.Queue(MAX_WAITING)
    writer = threading.Thread(target=_write, args=(waiting,), daemon=True)
    writer.start()
    for message in messages(JournalReader(Path(journal)), os.stat(journal).st_size):
        waiting.put(len(message).to_bytes(LENGTH_BYTES, "big"))
        waiting.put(message)
    waiting.put(b"")
    writer.join()


def _write(waiting: queue.Queue[bytes]) -> None:
    """Write messages as fast as they are taken; an empty one is the end."""
    while rest := memoryview(waiting.get()):
        while rest:
            rest = rest[os.write(sys.stdout.fileno(), rest) :]


if __name__ == "__main__":
    main(sys.argv[1])
