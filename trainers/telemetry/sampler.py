"""The sampler's loop: host, ranks and GPUs, at a steady pace, until nobody reads it.

GPUs are queried in a separate thread: a driver call that hangs releases the interpreter but cannot be cancelled, and
the host and the ranks are sampled meanwhile. The keeper of this process ends it if that takes too long.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import TypeVar

import psutil

from tuiapp.trainers.contract.events import DeviceSample, Event, RankSample, TelemetrySource, encode
from tuiapp.trainers.telemetry.amd import AmdSource
from tuiapp.trainers.telemetry.handover import Handover, SamplerConfig
from tuiapp.trainers.telemetry.host import HostSampler, Owners, RankSampler
from tuiapp.trainers.telemetry.nvidia import NvmlSource
from tuiapp.trainers.telemetry.source import EnergyCount, Gpu, Source, SourceError

T = TypeVar("T")

OPEN_LIMIT_S = 60.0
"""Drivers that are not kept loaded take seconds to start on a machine with many GPUs."""
CALL_LIMIT_S = 10.0
FIRST_RETRY_S, LAST_RETRY_S = 2.0, 60.0
REOPEN_S = 60.0
"""How often the library is opened anew while a GPU does not answer, or there is none."""


FIRST_S = 0.25
"""Seconds until the first sample, where the interval is longer: shares need some time to be of."""


class Sampler:
    def __init__(self, order: SamplerConfig) -> None:
        self._interval_s = order.interval_s
        self._host = HostSampler(order.run_dir)
        self._ranks: dict[int, RankSampler] = {}
        for rank, pid in order.ranks.items():
            try:
                self._ranks[rank] = RankSampler(pid)
            except psutil.Error:
                continue
        handover = Handover(order.handover_fd)
        owners = Owners(order.ranks)
        sources: list[Source] = []
        energy = EnergyCount(order.energy)
        if order.gpus:
            sources.append(NvmlSource(order.gpus, owners, energy))
        if order.gpus == "all" and AmdSource.installed():
            sources.append(AmdSource(owners, energy))
        self._sources = [Guarded(source, handover, order.left_alone.get(source.name, 0.0)) for source in sources]
        self._sending = threading.Lock()
        self._gpus_due = threading.Event()
        # Shares need a first reading, which is no sample yet.
        now = time.monotonic()
        self._host.sample(now)
        self._sample_ranks(now)

    def run(self) -> None:
        if self._sources:
            threading.Thread(target=self._query_sources, name="gpus", daemon=True).start()
        due = time.monotonic() + min(FIRST_S, self._interval_s)
        while True:
            time.sleep(max(0.0, due - time.monotonic()))
            now = time.monotonic()
            self._send([self._host.sample(now), *self._sample_ranks(now)])
            self._gpus_due.set()
            # Samples missed while the machine slept, or during a long call, are not made up for.
            due = max(due + self._interval_s, time.monotonic() + self._interval_s / 2)

    def _query_sources(self) -> None:
        try:
            while True:
                self._gpus_due.wait()
                self._send([event for source in self._sources for event in source.sample(time.monotonic())])
                # What came due meanwhile is not made up for.
                self._gpus_due.clear()
        except BaseException:
            # A sampler without its GPUs is restarted, like one that crashed.
            traceback.print_exc()
            os._exit(1)

    def _sample_ranks(self, now: float) -> list[Event]:
        events: list[Event] = []
        for rank, process in list(self._ranks.items()):
            try:
                events.append(RankSample(rank=rank, **process.sample(now)))  # type: ignore[arg-type]
            except psutil.Error:
                del self._ranks[rank]
        return events

    def _send(self, events: Sequence[Event]) -> None:
        if not events:
            return
        lines = b"".join(encode(event) for event in events)
        try:
            with self._sending:
                sys.stdout.buffer.write(lines)
                sys.stdout.buffer.flush()
        except OSError:
            # Nobody reads it.
            os._exit(0)


class Guarded:
    """Contains a library's failures; does not call it before `left_alone` on the monotonic clock."""

    def __init__(self, source: Source, handover: Handover, left_alone: float = 0.0) -> None:
        self._source, self._handover = source, handover
        self._open_at, self._retry_s = left_alone, FIRST_RETRY_S
        self._reopen_at = 0.0
        self._gpus: Sequence[Gpu] | None = None
        self._problem: str | None = None

    def sample(self, now: float) -> list[Event]:
        if self._gpus is None:
            if now < self._open_at:
                return []
            try:
                self._gpus = self._call(self._source.open, OPEN_LIMIT_S)
            except SourceError as error:
                self._open_at, self._retry_s = now + self._retry_s, min(LAST_RETRY_S, 2 * self._retry_s)
                return self._report(str(error))
            self._reopen_at, self._retry_s = now + REOPEN_S, FIRST_RETRY_S
        events = self._report("" if self._gpus else self._source.no_gpus)
        incomplete = not self._gpus
        for gpu in self._gpus:
            try:
                events += self._call(lambda gpu=gpu: gpu.alerts(time.monotonic()), CALL_LIMIT_S)  # type: ignore[misc]
                events.append(self._call(lambda gpu=gpu: gpu.sample(time.monotonic()), CALL_LIMIT_S))  # type: ignore[misc]
            except SourceError as error:
                incomplete = True
                events.append(DeviceSample(index=gpu.index, uuid=gpu.uuid, name=gpu.name, problem=str(error)))
        if incomplete and now >= self._reopen_at:
            # A lost GPU, and all of a driver that was reloaded, get valid handles by reopening.
            self._gpus = None
        return events

    def _call(self, call: Callable[[], T], limit_s: float) -> T:
        self._handover.enter(self._source.name, time.monotonic(), limit_s)
        try:
            return call()
        except SourceError:
            raise
        except Exception as error:
            raise SourceError(f"{type(error).__name__}: {error}") from error
        finally:
            self._handover.leave()

    def _report(self, problem: str) -> list[Event]:
        if problem == self._problem:
            return []
        self._problem = problem
        return [TelemetrySource(source=self._source.name, problem=problem)]
