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
"""Most bytes read at the end where lines are listened to; without a listener `READ_BYTES`."""

HELD_ROWS, HELD_POLLS = 64, 10
"""Rows up to which a progress bar may write over earlier lines, and polls for which it is waited for."""

_MOVES = re.compile(rb"(\n|\r\x1b\[0?K|\r|\x1b\[2K|\x1b\[\d*[AF])")
"""What ends a state of a progress bar: to the next line, back to the line's start, erase it, or some lines up."""
_UP = re.compile(rb"\x1b\[\d*[AF]")
_INVISIBLE = re.compile(rb"(\s|\x1b\[[\d;?]*[A-Za-z])*")


class LogTail:
    """Follows one log file, which need not exist yet; skips what an earlier attempt wrote to it."""

    def __init__(self, path: Path, rank: int, stream: Literal["stdout", "stderr"]) -> None:
        self.last_lines: deque[str] = deque(maxlen=20)
        self._path, self._rank = path, rank
        self._stream: Literal["stdout", "stderr"] = stream
        self.began = self._offset = self._size()
        """The byte at which this attempt begins in the file."""
        self._rest = b""
        self._cut = False
        self.on_texts: Callable[[list[str]], None] | None = None
        """Called with all lines, of which `poll` returns the first ones, and with each state of a progress bar."""
        self._unmatched: list[bytes] = []
        self.written = 0
        """Lines, and states of progress bars."""
        self._rows: Rows | None = None
        """The rows on which progress bars are drawn, while there are some."""

    def poll(self, *, final: bool = False) -> list[LogLine]:
        """Returns the lines since the last call; `final`, with the writer gone, also an unfinished last line.

        Lines that a progress bar may still write over come with a later call.
        """
        lines: list[bytes] = []
        # Only up to the present end: a writer that never pauses must not block this forever.
        end, passed = self._size(), 0
        while self._offset < end and (data := self._read()):
            lines += self._divide(data)
            if len(lines) >= LINES_PER_POLL:
                if not final:
                    break
                passed += self._pass_over(end)
        if final:
            if self._rest and not self._cut:
                lines += self._divide(b"\n")
            self._rest = b""
        if self._rows is not None:
            lines += self._rows.lines if final else self._rows.settle()
            if final or (self._rows.lines == [b""] and not self._rest):
                self._rows = None
        texts = [text for line in lines if (text := _decode(line))]
        self.last_lines.extend(texts)
        if self.on_texts is not None and (written := [text for line in self._unmatched if (text := _decode(line))]):
            self.on_texts(written)
        self._unmatched = []
        kept = texts[:LINES_PER_POLL]
        if passed or len(texts) > len(kept):
            omitted = f"{passed >> 20:,} MiB more" if passed >> 20 else f"{len(texts) - len(kept):,} more lines"
            kept.append(f"… {omitted} in {self._path.parent.name}/{self._path.name}")
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

    def _divide(self, data: bytes) -> list[bytes]:
        """Returns the lines that are complete."""
        data = data.replace(b"\r\n", b"\n")
        if self._rows is None and (b"\r" in data or _UP.search(data)):
            self._rows = Rows()
        if self._rows is not None:
            return self._redraw(self._rows, data)
        *lines, remainder = (self._rest + data).split(b"\n")
        if lines and self._cut:
            # The rest of a line whose start was already taken.
            lines, self._cut = lines[1:], False
        self.written += len(lines)
        if self.on_texts is not None:
            self._unmatched += lines
        if len(remainder) > MAX_LINE_BYTES:
            if not self._cut:
                lines.append(remainder[:MAX_LINE_BYTES])
            remainder, self._cut = b"", True
        self._rest = remainder
        return lines

    def _redraw(self, rows: Rows, data: bytes) -> list[bytes]:
        *turns, remainder = _MOVES.split(self._rest + data)
        if turns and self._cut:
            turns[0], self._cut = b"", False
        self._rest = remainder[:MAX_LINE_BYTES]
        self.written += len(turns) // 2
        if self.on_texts is not None:
            self._unmatched += turns[::2]
        return rows.write(turns)


class Rows:
    """The last lines as a terminal has them, while progress bars, one beneath the other, write over each other's."""

    def __init__(self) -> None:
        self.lines = [b""]
        self._moved_to = [0]
        """Per line, the poll in which a bar has last gone back to it; 0 for never."""
        self._at, self._polls = 0, 1

    def write(self, turns: list[bytes]) -> list[bytes]:
        """Takes texts, each followed by what `_MOVES` matches; returns the lines that are out of reach."""
        for text, move in zip(turns[::2], turns[1::2], strict=True):
            if text:
                self.lines[self._at] = text
            if move == b"\n":
                self._at += 1
                if self._at == len(self.lines):
                    self.lines.append(b"")
                    self._moved_to.append(0)
                continue
            if move.endswith((b"A", b"F")):
                up = min(int(move[2:-1] or 1), HELD_ROWS)
                above = max(0, up - self._at)
                self.lines[:0], self._moved_to[:0] = [b""] * above, [0] * above
                self._at += above - up
            elif move != b"\r":
                self.lines[self._at] = b""
            self._moved_to[self._at] = self._polls
        return self._take(max(0, self._at - HELD_ROWS))

    def settle(self) -> list[bytes]:
        """Returns the lines to which no bar has gone back of late; called once a poll."""
        self._polls += 1
        above = self._moved_to[: self._at]
        held = (n for n, poll in enumerate(above) if poll and self._polls - poll <= HELD_POLLS)
        return self._take(next(held, self._at))

    def _take(self, count: int) -> list[bytes]:
        taken = self.lines[:count]
        del self.lines[:count], self._moved_to[:count]
        self._at -= count
        return taken


def _decode(line: bytes) -> str:
    """Decodes a line; "" of one that shows nothing."""
    return "" if _INVISIBLE.fullmatch(line) else line[:MAX_LINE_BYTES].decode(errors="replace").rstrip()
