"""A real terminal for the real program: a pty, with an emulator that knows what is on the screen."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple

import pexpect
import pyte

KEYS = {
    "enter": "\r",
    "tab": "\t",
    "escape": "\x1b",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "delete": "\x1b[3~",
    "backspace": "\x7f",
    "home": "\x1b[H",
    "end": "\x1b[F",
    "f1": "\x1bOP",
    "f3": "\x1bOR",
}

_UNKNOWN_TO_PYTE = re.compile(rb"\x1b\[[<>=][0-9;:]*[A-Za-z]|\x1b\[\?[0-9;]*\$p|\x1b\[[0-9; ]*[qt]|\x1b\[\?[0-9;]*u")
_UNFINISHED = re.compile(rb"\x1b(\[[0-9;:?<>=$ ]*)?\Z")

READY = r"CPU cores[\s\S]*quickstart[\s\S]*\^q Quit"
"""The dashboard's whole first picture: its parts come one after the other on a busy machine."""

GONE_S = 60.0
"""What a killed process may take on a loaded machine."""


def end(process: pexpect.spawn[bytes] | pexpect.spawn[str]) -> None:
    """Kill a program and wait until it is gone: pexpect's own `close` gives it no more than a tenth of a second."""
    process.kill(signal.SIGKILL)
    deadline = time.monotonic() + GONE_S
    while process.isalive() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.close(force=True)


class Arrival(NamedTuple):
    """What a program wrote, and when that came."""

    at: float
    """Of `time.monotonic`."""
    data: bytes


class Terminal:
    """Runs a program in a pty.

    Args:
        command: The program and its arguments.
        columns: Width in cells.
        lines: Height in cells.
        environment: Beside this process's own.
    """

    def __init__(
        self, command: Sequence[str], columns: int = 120, lines: int = 40, environment: Mapping[str, str] | None = None
    ) -> None:
        self.screen = pyte.Screen(columns, lines)
        self.raw = bytearray()
        """All that the program has written."""
        self._stream = pyte.ByteStream(self.screen)
        self._held = b""
        inherited = {name: text for name, text in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
        self.began = time.monotonic()
        self.process: pexpect.spawn[bytes] = pexpect.spawn(
            command[0],
            list(command[1:]),
            dimensions=(lines, columns),
            env={**inherited, "TERM": "xterm-256color", "COLORTERM": "truecolor", **(environment or {})},
            timeout=None,
        )
        self.process.delaybeforesend = None

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        end(self.process)

    @property
    def text(self) -> str:
        """What stands on the screen."""
        self._pump(0)
        return "\n".join(self.screen.display)

    @property
    def cursor_line(self) -> str:
        """The line with the cursor, which Textual puts where the focused input is."""
        return self.screen.display[self.screen.cursor.y]

    def wait(self, pattern: str, seconds: float = 60) -> float:
        """Wait until the screen matches a pattern.

        Returns:
            Seconds since the program's start.
        """
        deadline = time.monotonic() + seconds
        while not re.search(pattern, "\n".join(self.screen.display)):
            assert time.monotonic() < deadline, f"{pattern!r} did not come in {seconds} s:\n{self.text}"
            assert self.process.isalive() or self._pump(0), f"it ended before {pattern!r} came:\n{self.text}"
            self._pump(0.05)
        return time.monotonic() - self.began

    def wait_gone(self, pattern: str, seconds: float = 60) -> None:
        """Wait until nothing on the screen matches a pattern any more: a dialog was closed, a key has come through."""
        deadline = time.monotonic() + seconds
        while re.search(pattern, "\n".join(self.screen.display)):
            assert time.monotonic() < deadline, f"{pattern!r} did not go in {seconds} s:\n{self.text}"
            self._pump(0.05)

    def wait_for_cursor(self, pattern: str, seconds: float = 60) -> None:
        """Wait until the cursor stands in a line that matches a pattern: the field there has the focus."""
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.cursor_line):
            assert time.monotonic() < deadline, f"the cursor is in {self.cursor_line!r} after {seconds} s:\n{self.text}"
            self._pump(0.05)

    def wait_for_silence(self, quiet_s: float = 0.3, seconds: float = 5) -> None:
        """Wait until nothing has been written for a moment: what was sent has been dealt with."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._pump(quiet_s):
            continue

    def press(self, *keys: str) -> None:
        """Press keys: names of `KEYS`, `ctrl+x`, or text to type."""
        for key in keys:
            if key.startswith("ctrl+"):
                self.process.send(bytes([ord(key[-1]) - ord("a") + 1]))
            else:
                self.process.send(KEYS.get(key, key))

    def click(self, pattern: str) -> None:
        """Click on the first thing on the screen that matches a pattern."""
        for row, line in enumerate(self.screen.display, start=1):
            if found := re.search(pattern, line):
                place = f"0;{found.start() + 1};{row}"
                self.process.send(f"\x1b[<{place}M\x1b[<{place}m")
                return
        raise AssertionError(f"{pattern!r} is not on the screen:\n{self.text}")

    def resize(self, columns: int, lines: int) -> None:
        """Change the terminal's size, as a window's user would."""
        self.screen.resize(lines, columns)
        self.process.setwinsize(lines, columns)

    def wait_exit(self, seconds: float = 60) -> int:
        """Wait for the program's end.

        Returns:
            Its exit code; a signal's number, negative, if one ended it.
        """
        deadline = time.monotonic() + seconds
        while self.process.isalive():
            assert time.monotonic() < deadline, f"it did not end in {seconds} s:\n{self.text}"
            self._pump(0.05)
        while self._pump(0):
            continue
        return -self.process.signalstatus if self.process.signalstatus else int(self.process.exitstatus or 0)

    def restored(self) -> bool:
        """Whether the program has left the alternate screen and switched the mouse off again."""
        pairs = ((b"\x1b[?1049h", b"\x1b[?1049l"), (b"\x1b[?1000h", b"\x1b[?1000l"))
        return all(self.raw.rfind(on) <= self.raw.rfind(off) for on, off in pairs)

    def gather(self, until: Callable[[bytearray], bool], seconds: float, quiet_s: float = 0.0) -> list[Arrival]:
        """Take what the program writes, with its times, and put nothing on the screen yet: that costs the emulator as
        much processor time as the program itself, which would then be measured beside it.

        Args:
            until: Whether what has come since the call is enough.
            seconds: How long to wait for that at most.
            quiet_s: For how long nothing may have come after that.
        """
        arrivals, come, deadline = list[Arrival](), bytearray(), time.monotonic() + seconds
        while time.monotonic() < deadline:
            if data := self._take(quiet_s or 0.05):
                arrivals.append(Arrival(time.monotonic(), data))
                come += data
            if until(come) and not (data and quiet_s):
                break
        return arrivals

    def show(self, data: bytes) -> None:
        """Put what was gathered on the screen."""
        data = self._held + data
        tail = _UNFINISHED.search(data)
        self._held = data[tail.start() :] if tail else b""
        self._stream.feed(_UNKNOWN_TO_PYTE.sub(b"", data[: tail.start()] if tail else data))

    def _take(self, timeout_s: float) -> bytes:
        try:
            data: bytes = self.process.read_nonblocking(65536, timeout_s)
        except (pexpect.TIMEOUT, pexpect.EOF):
            return b""
        self.raw += data
        return data

    def _pump(self, timeout_s: float) -> bool:
        """Take what the program has written; False when there was nothing within the timeout."""
        data = self._take(timeout_s)
        if data:
            self.show(data)
        return bool(data)
