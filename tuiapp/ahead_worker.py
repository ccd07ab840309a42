"""Reads a journal to its present end for a dashboard that is only starting: `python -m tuiapp.ahead_worker JOURNAL`.

What it has read goes to its stdout in messages, each after its length in four bytes: events as they are, but batches of
steps put together. It ends with the journal, or when nobody takes what it says.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from trainers.contract.events import AnyEvent, Evaluation, FrameworkMemory, HostSample, LogLine, RankSample, Steps
from trainers.contract.journal import JournalReader
from tuiapp.ahead import LENGTH_BYTES
from tuiapp.state.digest import Digest, Digester

Told: TypeAlias = AnyEvent | Digest
"""An event, or a digest of many."""

MAX_WAITING = 64
"""Messages, of half a megabyte each, that wait while the dashboard has no time yet."""

INDEPENDENT = (RankSample, HostSample, LogLine, Evaluation, FrameworkMemory)
"""Events that come to the same before batches of steps and after them; before any other those batches are told."""


class Message(msgspec.Struct, frozen=True, array_like=True):
    """A part of a journal."""

    offset: int
    """Where it ends."""
    told: list[Told]


decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def digest(events: Sequence[AnyEvent], digester: Digester) -> Iterator[Told]:
    """The same events, batches of steps put together."""
    for event in events:
        if isinstance(event, INDEPENDENT):
            yield event
        elif not isinstance(event, Steps) or not digester.add(event):
            if done := digester.finish():
                yield done
            yield event
    if done := digester.finish():
        yield done


def main(journal: str) -> None:
    """Write all there is of a journal to stdout."""
    # The dashboard is gone: nobody wants to hear of it.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    messages: queue.Queue[bytes] = queue.Queue(MAX_WAITING)
    writer = threading.Thread(target=_write, args=(messages,), daemon=True)
    writer.start()
    reader, digester = JournalReader(Path(journal)), Digester()
    end = os.stat(journal).st_size
    while reader.offset < end and (events := reader.read()):
        message = msgspec.msgpack.encode(Message(reader.offset, list(digest(events, digester))))
        messages.put(len(message).to_bytes(LENGTH_BYTES, "big") + message)
    messages.put(b"")
    writer.join()


def _write(messages: queue.Queue[bytes]) -> None:
    """Write messages as fast as they are taken; an empty one is the end."""
    while rest := memoryview(messages.get()):
        while rest:
            rest = rest[os.write(sys.stdout.fileno(), rest) :]


if __name__ == "__main__":
    main(sys.argv[1])
