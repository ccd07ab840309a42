"""Reads JSON lines from a pipe."""

from __future__ import annotations

import os
from typing import Any

import msgspec

READ_BYTES = 1 << 20
MAX_MESSAGE_BYTES = 16 << 20


class LineReader:
    """Splits a descriptor's data, blocking or not, into messages; drops and counts lines that `decoder` rejects."""

    def __init__(self, fd: int, decoder: msgspec.json.Decoder[Any]) -> None:
        self.fd = fd
        self.ended = False
        """True once the other side has closed, or died."""
        self.dropped = 0
        self._decoder = decoder
        self._rest = bytearray()

    def read(self) -> list[Any]:
        """Messages complete now, after at most one read of `READ_BYTES`."""
        return self._split(self._receive())

    def read_all(self) -> list[Any]:
        """Messages complete now, of a non-blocking descriptor whose writer has died.

        A child of the writer may hold the descriptor open, so this does not wait for its end.
        """
        messages: list[Any] = []
        while data := self._receive():
            messages += self._split(data)
        return messages

    def _receive(self) -> bytes:
        """What is there now; b"" for nothing, and at the end."""
        try:
            data = os.read(self.fd, READ_BYTES)
        except BlockingIOError:
            return b""
        except OSError:
            data = b""
        self.ended = not data
        return data

    def _split(self, data: bytes) -> list[Any]:
        self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        if len(self._rest) > MAX_MESSAGE_BYTES:
            self._rest = bytearray()
            self.dropped += 1
        messages = []
        for line in lines:
            try:
                messages.append(self._decoder.decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self.dropped += 1
        return messages
