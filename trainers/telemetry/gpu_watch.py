"""Asks the driver again and again which GPUs are in use, in a process of its own: it may hang or crash there."""

from __future__ import annotations

import contextlib
import ctypes
import select
import subprocess
import sys
import time

import msgspec

from tuiapp.trainers.config.machine import Gpu, GpuReport

ANSWER_S = 60.0
"""Seconds that the driver has for an answer; then its process is given up, and another asked later."""
AGAIN_S = 30.0


class GpuWatch:
    def __init__(self) -> None:
        self._probe: subprocess.Popen[bytes] | None = None
        self._gpus: tuple[Gpu, ...] = ()
        self._asked: float | None = None
        self._answered = self._failed = float("-inf")

    def look(self, every_s: float) -> tuple[Gpu, ...]:
        """Returns all GPUs as the driver said last, and asks it again if that was `every_s` seconds ago."""
        now = time.monotonic()
        if self._asked is None and now - self._answered >= every_s and now - self._failed >= AGAIN_S:
            self._ask(now)
            # The first answer is worth waiting for.
            if not self._gpus:
                self._wait(ANSWER_S)
        elif self._asked is not None:
            self._wait(0.0)
            if self._asked is not None and now - self._asked > ANSWER_S:
                self._give_up(now)
        return self._gpus

    def close(self) -> None:
        """Ends the process that asks."""
        if self._probe is not None:
            self._probe.kill()
            self._probe = None

    def _ask(self, now: float) -> None:
        if self._probe is None or self._probe.poll() is not None:
            try:
                ctypes.CDLL("libnvidia-ml.so.1")
            except OSError:
                self._failed = now
                return
            command = [sys.executable, "-P", "-m", "tuiapp.trainers.telemetry.probe", "--again"]
            self._probe = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        assert self._probe.stdin is not None
        try:
            self._probe.stdin.write(b"\n")
        except OSError:
            self._give_up(now)
        else:
            self._asked = now

    def _wait(self, timeout_s: float) -> None:
        """Takes the answer if there is one within the time."""
        probe = self._probe
        if probe is None or probe.stdout is None or not select.select([probe.stdout], [], [], timeout_s)[0]:
            return
        line = probe.stdout.readline()
        with contextlib.suppress(msgspec.DecodeError):
            self._gpus = msgspec.json.decode(line, type=GpuReport).gpus
            self._answered, self._asked = time.monotonic(), None
            return
        self._give_up(time.monotonic())

    def _give_up(self, now: float) -> None:
        self.close()
        self._asked, self._failed, self._gpus = None, now, ()
