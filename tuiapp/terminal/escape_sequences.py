"""Removes from a terminal's input what Textual's parser cannot read.

Textual 8.2.8 retries each prefix of a sequence, and treats what it cannot read as typed: a report of some kilobytes
takes seconds and presses thousands of keys. An ESC within a paste becomes keys too.
"""

from __future__ import annotations

import re

LONGEST = 32
"""Bytes of the longest control sequence that Textual reads."""

_BEGUN = re.compile(rb"\x1b(?:\[[\x20-\x3f]*|\[M[\x20-\xff]{0,2}|[\]PX^_])?\Z")
_CONTROL = re.compile(rb"\x1b\[[\x20-\x3f]*[\x40-\x7e]?")
_CONTROL_REST = re.compile(rb"[\x20-\x3f]*([\x40-\x7e])?")
_STRING = re.compile(rb"\x1b[\]PX^_](?=[^\x00-\x1f\x7f])")
"""OSC, DCS, SOS, PM or APC; without a body it is a character typed with Alt."""

_STRING_REST = re.compile(rb"[^\x00-\x1f\x7f]*(\x07|\x1b\\|\x1b\Z)?")
_X10_REPORT = re.compile(rb"\x1b\[M[\x20-\xff]{3}")
"""From terminals with no other mouse protocol; raw bytes beyond column 95 crash Textual (textual#6668)."""

_PASTE, _PASTE_END = b"\x1b[200~", b"\x1b[201~"
_PASTE_END_BEGUN = re.compile(rb"\x1b(?:\[(?:2(?:0(?:1)?)?)?)?\Z")


class EscapeSequences:
    """Drops long control sequences, strings, X10 mouse reports, and ESCs within a paste from the input.

    Strings answer queries that neither Textual nor this program sends. One without an end extends to the next control
    character, or to `rest`. Takes time linear in the input's length.
    """

    def __init__(self) -> None:
        self._held = b""
        """A possible start of a sequence, or end of a string or paste."""
        self._in_paste = False
        self._skipped: re.Pattern[bytes] | None = None
        """Matches the rest of what is dropped; its group is the terminator."""

    @property
    def waits(self) -> bool:
        """Whether `rest` is due after a pause in the input."""
        return not self._in_paste and bool(self._held or self._skipped)

    def feed(self, data: bytes) -> bytes:
        """Returns what can be passed on so far."""
        data, self._held = self._held + data, b""
        passed = bytearray()
        at = 0
        while at < len(data):
            if self._in_paste:
                at = self._paste(data, at, passed)
            elif self._skipped:
                at = self._skip(data, at, self._skipped)
            else:
                at = self._typed(data, at, passed)
        return bytes(passed)

    def rest(self) -> bytes:
        """Returns the held input: the Escape key, or a character typed with Alt."""
        if not self.waits:
            return b""
        held, self._held, self._skipped = self._held, b"", None
        return held

    def _typed(self, data: bytes, at: int, passed: bytearray) -> int:
        start = data.find(b"\x1b", at)
        if start < 0:
            start = len(data)
        passed += data[at:start]
        if _BEGUN.match(data, start):
            if len(data) - start > LONGEST:
                self._skipped = _CONTROL_REST
            else:
                self._held = data[start:]
            return len(data)
        if report := _X10_REPORT.match(data, start):
            return report.end()
        if string := _STRING.match(data, start):
            self._skipped = _STRING_REST
            return string.end()
        if control := _CONTROL.match(data, start):
            if len(control[0]) <= LONGEST:
                passed += control[0]
            self._in_paste = control[0] == _PASTE
            return control.end()
        passed += data[start : start + 1]
        return start + 1

    def _skip(self, data: bytes, at: int, pattern: re.Pattern[bytes]) -> int:
        skipped = pattern.match(data, at)
        assert skipped is not None
        if skipped[1] == b"\x1b":
            self._held = b"\x1b"
        elif skipped[1] or skipped.end() < len(data):
            self._skipped = None
        return skipped.end()

    def _paste(self, data: bytes, at: int, passed: bytearray) -> int:
        end = data.find(_PASTE_END, at)
        if end >= 0:
            self._in_paste = False
            passed += data[at:end].replace(b"\x1b", b"") + _PASTE_END
            return end + len(_PASTE_END)
        begun = _PASTE_END_BEGUN.search(data, at)
        end = begun.start() if begun else len(data)
        passed += data[at:end].replace(b"\x1b", b"")
        self._held = data[end:]
        return len(data)
