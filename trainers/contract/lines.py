"""Writes and reads JSON lines: the journal's, and those between processes."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from tuiapp.trainers.config.files import printable

READ_BYTES = 1 << 20
MAX_MESSAGE_BYTES = 16 << 20


_encoder = msgspec.json.Encoder()


def encode_json(message: Any) -> bytes:
    """Encodes a message, whatever it holds: what JSON cannot hold stands as text, all text as `printable`.

    JSON is UTF-8, and a path, an exception's text or a name may be anything. Raises RecursionError if a value holds
    itself.
    """
    try:
        return _encoder.encode(message)
    except (UnicodeEncodeError, TypeError, ValueError):
        return _encoder.encode(_plain(msgspec.to_builtins(message, str_keys=True, enc_hook=str)))


def encode_line(message: Any) -> bytes:
    """Encodes a message as one line, newline included: see `encode_json`."""
    return encode_json(message) + b"\n"


def _plain(value: Any) -> Any:
    match value:
        case str():
            return printable(value)
        case dict():
            return {printable(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return value


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
        """Returns the messages complete now, after at most one read of `READ_BYTES`."""
        return self._split(self._receive())

    def read_all(self) -> list[Any]:
        """Returns the messages complete now, of a non-blocking descriptor whose writer has died.

        A child of the writer may hold the descriptor open, so this does not wait for its end.
        """
        messages: list[Any] = []
        while data := self._receive():
            messages += self._split(data)
        return messages

    def _receive(self) -> bytes:
        """Returns what is there now; b"" for nothing, and at the end."""
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
