"""Turns what a rank writes to a log file into log events, bounded in length and number.

Ranks write to files, not to pipes: a supervisor that is stopped or gone must not block or kill them.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from tuiapp.trainers.contract.events import LogLine

MAX_LINE_BYTES = 8 * 1024
LINES_PER_POLL = 200
READ_BYTES = 256 * 1024
LISTENED_BYTES = 16 << 20
"""Read at the end where lines are listened to; without a listener `READ_BYTES`."""

_REWRITES = re.compile(rb"\r|\x1b\[\d*A")
"""What a progress bar writes before it writes over a line: back to its start or, with a bar below another, up to it."""


class LogTail:
    """Follows one log file, which need not exist yet; skips what an earlier attempt wrote to it."""

    def __init__(self, path: Path, rank: int, stream: Literal["stdout", "stderr"]) -> None:
        self.last_lines: deque[str] = deque(maxlen=20)
        self._path, self._rank = path, rank
        self._stream: Literal["stdout", "stderr"] = stream
        self.began = self._offset = self._size()
        """Where this attempt begins in the file."""
        self._rest = b""
        self._cut = False
        self.on_texts: Callable[[list[str]], None] | None = None
        """Called with all lines, of which `poll` returns the first ones, and with each state of a progress bar."""
        self._unmatched: list[bytes] = []

    def poll(self, *, final: bool = False) -> list[LogLine]:
        """Returns the lines since the last call; `final`, with the writer gone, also an unfinished last line."""
        lines: list[bytes] = []
        # Only up to the present end: a writer that never pauses must not block this forever.
        end, passed = self._size(), 0
        while self._offset < end and (data := self._read()):
            lines += self._split(data)
            if len(lines) >= LINES_PER_POLL:
                if not final:
                    break
                passed += self._pass_over(end)
        if final:
            if self._rest and not self._cut:
                lines.append(self._rest)
                self._unmatched.append(self._rest)
            self._rest = b""
        texts = [text for line in lines if (text := _decode(line))]
        self.last_lines.extend(texts)
        if self.on_texts is not None:
            states = [state for line in self._unmatched for state in line.split(b"\r")]
            if written := [text for state in states if (text := _decode(state))]:
                self.on_texts(written)
        self._unmatched = []
        kept = texts[:LINES_PER_POLL]
        if passed or len(texts) > len(kept):
            more = f"{passed >> 20:,} MiB more" if passed >> 20 else f"{len(texts) - len(kept):,} more lines"
            kept.append(f"… {more} in {self._path.parent.name}/{self._path.name}")
        return [LogLine(rank=self._rank, stream=self._stream, text=text) for text in kept]

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def _pass_over(self, end: int) -> int:
        """Skips to the last lines; returns the bytes skipped."""
        passed = max(0, end - (LISTENED_BYTES if self.on_texts else READ_BYTES) - self._offset)
        if passed:
            self._offset += passed
            self._rest, self._cut = b"", True
        return passed

    def _read(self) -> bytes:
        try:
            with self._path.open("rb", buffering=0) as file:
                data = os.pread(file.fileno(), READ_BYTES, self._offset)
        except OSError:
            return b""
        self._offset += len(data)
        return data

    def _split(self, data: bytes) -> list[bytes]:
        *lines, rest = (self._rest + data).split(b"\n")
        if lines and self._cut:
            # The rest of a line whose start was already taken.
            lines, self._cut = lines[1:], False
        # Of a progress bar that rewrites itself only the newest state is kept.
        newest = rest.rstrip(b"\r").rfind(b"\r") + 1
        passed, rest = rest[:newest], rest[newest:]
        if self.on_texts is not None:
            self._unmatched += lines if self._cut else [*lines, passed]
        if len(rest) > MAX_LINE_BYTES:
            if not self._cut:
                lines.append(rest[:MAX_LINE_BYTES])
            rest, self._cut = b"", True
        self._rest = rest
        return lines


def _decode(line: bytes) -> str:
    """Decodes a line; of a progress bar that rewrites itself, its last state; "" of one that shows nothing."""
    states = [state for state in _REWRITES.split(line) if state.strip()]
    return states[-1][:MAX_LINE_BYTES].decode(errors="replace").rstrip() if states else ""
