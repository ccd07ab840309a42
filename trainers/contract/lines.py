"""Reads JSON lines from a pipe."""

from __future__ import annotations

import os
from typing import Any

import msgspec

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

    def read(self, limit_bytes: int = 1 << 20) -> list[Any]:
        """Messages complete now, after at most one read of `limit_bytes`."""
        try:
            data = os.read(self.fd, limit_bytes)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.ended = True
            return []
        return self._split(data)

    def read_all(self) -> list[Any]:
        """Messages complete now, of a non-blocking descriptor whose writer has died.

        A child of the writer may hold the descriptor open, so this does not wait for its end.
        """
        messages: list[Any] = []
        while not self.ended:
            try:
                data = os.read(self.fd, 1 << 20)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            self.ended = not data
            messages += self._split(data)
        return messages

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
