"""Samples of this machine's devices without a run, from a sampler of one's own."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from trainers.contract.events import AnyEvent, DeviceSample, HostSample, TelemetrySource, decode

START_S = 30.0
"""Until the sampler's process is heard of."""

DRIVER_START_S = 30.0
"""A driver that is not kept loaded takes seconds to start on a machine with many GPUs."""

SILENT_S = 15.0
"""A sampler that says nothing for so much longer than its interval hangs."""

MAX_WAITING = 4096


class SamplerGone(Exception):
    """The sampler has ended, or hangs; the message says which, in words."""


class Samples(Protocol):
    """A source of samples, one moment after the other."""

    def start(self) -> None:
        """Begin to sample.

        Raises:
            SamplerGone: that cannot be done.
        """
        ...

    def samples(self) -> Iterator[list[AnyEvent]]:
        """All events of each moment; blocks until the next has come.

        Raises:
            SamplerGone: there will be none any more.
        """
        ...

    def close(self) -> None:
        """Stop sampling."""
        ...


class SamplerFeed:
    """Runs a sampler and takes its samples.

    The driver's libraries are called in that process alone: where a call hangs or crashes, this one goes on.

    Args:
        directory: On the disk that is looked at.
        interval_s: Between two samples.
    """

    def __init__(self, directory: Path, interval_s: float) -> None:
        self._interval_s = interval_s
        order = {"run_dir": str(directory), "gpus": "all", "interval_s": interval_s}
        self._command = [sys.executable, "-P", "-m", "trainers.telemetry", json.dumps(order)]
        self._events: queue.Queue[AnyEvent | None] = queue.Queue(MAX_WAITING)
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self.pending: list[AnyEvent] = []
        """What has come of a sample that is not whole."""

    def start(self) -> None:
        """Start the sampler.

        Raises:
            SamplerGone: no process could be started.
        """
        quiet = subprocess.DEVNULL
        try:
            # A session of its own: the terminal's Ctrl-C is for the one who shows the samples.
            self._process = subprocess.Popen(
                self._command, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet, start_new_session=True
            )
        except OSError as error:
            raise SamplerGone(f"the sampler could not be started: {error.strerror}") from error
        threading.Thread(target=self._read, name="sampler-feed", daemon=True).start()

    def close(self) -> None:
        """End the sampler; does not wait for one that hangs in a driver."""
        self._closed = True
        if self._process is not None and self._process.poll() is None:
            self._process.kill()

    def samples(self) -> Iterator[list[AnyEvent]]:
        """All events of one moment after the other; blocks until the next has come.

        The first is whole when the GPUs, or what is wrong with them, have been heard of.

        Raises:
            SamplerGone: there will be none any more.
        """
        gpus: int | None = None
        driver = _DriverWatch(DRIVER_START_S, self._interval_s + SILENT_S)
        while True:
            event = self._next(START_S if not self.pending and gpus is None else self._interval_s + SILENT_S)
            driver.look(event)
            # The host comes first in each: what had gathered before it is whole.
            if isinstance(event, HostSample) and driver.heard and any(isinstance(o, HostSample) for o in self.pending):
                gpus = _count(self.pending)
                yield self._take()
            self.pending.append(event)
            if isinstance(self.pending[0], HostSample) and _count(self.pending) == gpus:
                yield self._take()

    def _take(self) -> list[AnyEvent]:
        taken, self.pending = self.pending, []
        return taken

    def _next(self, limit_s: float) -> AnyEvent:
        try:
            event = self._events.get(timeout=limit_s)
        except queue.Empty:
            raise SamplerGone(f"the sampler has told nothing for {limit_s:.0f} s: it hangs") from None
        if event is None:
            raise SamplerGone(self._how_it_ended())
        return event

    def _how_it_ended(self) -> str:
        assert self._process is not None
        code = self._process.wait()
        if code < 0:
            return f"the sampler was killed by {signal.Signals(-code).name}: a crash in a GPU's driver library?"
        return f"the sampler ended with exit code {code}"

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = decode(line)
            if event is None:
                continue
            while not self._closed:
                try:
                    self._events.put(event, timeout=0.5)
                    break
                except queue.Full:
                    continue
        self._events.put(None)


class _DriverWatch:
    """Notices that a driver hangs: the host is told on then, and no GPU.

    By the sampler's clock: this side may have been suspended.

    Args:
        start_s: Until it is heard of first.
        silent_s: Between two samples of a GPU that answers.
    """

    def __init__(self, start_s: float, silent_s: float) -> None:
        self._start_s, self._silent_s = start_s, silent_s
        self._since: float | None = None
        self._answering: dict[str, bool] = {}
        self.heard = False

    def look(self, event: AnyEvent) -> None:
        """Take the next event.

        Raises:
            SamplerGone: it hangs.
        """
        if isinstance(event, DeviceSample):
            self._answering[event.uuid] = not event.problem
        if isinstance(event, DeviceSample | TelemetrySource):
            self.heard, self._since = True, event.mono
        self._since = event.mono if self._since is None else self._since
        limit_s = self._silent_s if self.heard else self._start_s
        # One without a GPU that answers has nothing to tell, and that is told already.
        if event.mono - self._since > limit_s and (not self.heard or any(self._answering.values())):
            raise SamplerGone(f"nothing was heard from the GPU driver for {limit_s:.0f} s: it hangs")


def _count(events: list[AnyEvent]) -> int:
    return sum(isinstance(event, DeviceSample) for event in events)


def existing(directory: Path) -> Path:
    """The directory itself, or the nearest one above it that exists."""
    return next(path for path in (directory, *directory.parents) if os.path.exists(path))
