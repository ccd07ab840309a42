"""Keeps a sampler running: starts, watches and restarts it, and turns its reports into alerts.

The sampler calls into drivers that may crash or hang. Before each call it records the library in a page shared with
this side: if it dies, or does not return in time, that library is to blame. One that took the sampler down twice is
disabled for a while, after each further time too; everything else is still sampled.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import inf
from time import monotonic
from typing import IO

import msgspec

from tuiapp.trainers.contract.events import Alert, AnyEvent, DeviceSample, Event, HostSample, TelemetrySource
from tuiapp.trainers.contract.lines import LineReader
from tuiapp.trainers.telemetry.alerts import Alerts
from tuiapp.trainers.telemetry.handover import Handover, SamplerConfig, encode_config

COMMAND = (sys.executable, "-P", "-m", "tuiapp.trainers.telemetry")
SELF = "sampler"
"""The sampler itself, if no library is to blame."""
FIRST_PAUSE_S, LAST_PAUSE_S = 1.0, 60.0
BAN_S = 600.0
SILENT_S = 30.0
"""A sampler that is silent for this long, though in no library, hangs too."""
END_S = 1.0
FAILURES = 2
SUSPENDED_S = 5.0
"""A keeper not called for this long was suspended, perhaps together with the sampler."""

_event: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


class SamplerKeeper:
    """One sampler, over all its restarts; `advance` starts the first, by `command` with its order appended.

    `watch` registers a callback for a readable descriptor, `forget` ends that; `log` opens the file for its stderr.
    """

    def __init__(
        self,
        order: SamplerConfig,
        environment: Mapping[str, str],
        log: Callable[[], IO[bytes]],
        emit: Callable[[Event], None],
        watch: Callable[[int, Callable[[], None]], None],
        forget: Callable[[int], None],
        command: Sequence[str] | None = None,
    ) -> None:
        self._command, self._environment, self._log = command or COMMAND, dict(environment), log
        self._emit, self._watch, self._forget = emit, watch, forget
        self._page = Handover()
        self._order = order
        self._alerts = Alerts(order.run_dir)
        self._process: subprocess.Popen[bytes] | None = None
        self._messages: LineReader | None = None
        self._killed: list[subprocess.Popen[bytes]] = []
        """Killed, and held by a driver until its call returns."""
        self._start_at = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._heard = self._started = 0.0
        self._looked = inf
        self._failures: Counter[str] = Counter()
        self._banned: dict[str, float] = {}
        """Library → when it may be called again."""
        self._energy: dict[str, float] = {}
        """GPU → joules that the samplers have counted."""
        self._problems: dict[str, str] = {}
        self.failure: TelemetrySource | None = None

    def advance(self, now: float) -> None:
        """Supervises the sampler; called about ten times a second, with the monotonic clock."""
        looked, self._looked = self._looked, now
        if now - looked > SUSPENDED_S:
            # This side did not run: the sampler's output meanwhile waits in the pipe.
            self._heard = now
            return
        self._killed = [process for process in self._killed if process.poll() is None]
        if self._process is None:
            if now >= self._start_at:
                self._start(now)
            return
        call = self._page.call()
        if call is not None and now - call.since > call.limit_s:
            self._fail(call.library, f"did not answer within {call.limit_s:.0f} s", now)
        elif call is None and now - self._heard > SILENT_S + self._order.interval_s:
            self._fail(SELF, f"reported nothing for {SILENT_S:.0f} s", now)

    def _start(self, now: float) -> None:
        order = msgspec.structs.replace(
            self._order, handover_fd=self._page.fd, left_alone=self._banned, energy=self._energy
        )
        self._page.leave()
        try:
            with self._log() as log:
                self._process = subprocess.Popen(
                    [*self._command, encode_config(order)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=self._environment,
                    pass_fds=[self._page.fd],
                    start_new_session=True,
                )
        except OSError as error:
            self._put_off(now)
            self.failure = TelemetrySource(source=SELF, problem=f"cannot be started: {error.strerror}")
            self._report(SELF, self.failure.problem)
            return
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._messages = LineReader(self._process.stdout.fileno(), _event)
        self._heard = self._started = now
        self._watch(self._messages.fd, self._read)

    def _read(self) -> None:
        assert self._messages is not None
        # By this side's clock: messages that waited in the pipe while this side was suspended are no sign of a hang.
        self._heard = monotonic()
        for event in self._messages.read():
            if isinstance(event, TelemetrySource):
                self._report(event.source, event.problem)
                continue
            self._emit(event)
            if isinstance(event, DeviceSample) and event.energy_j is not None:
                self._energy[event.uuid] = event.energy_j
            if isinstance(event, DeviceSample | HostSample):
                self._report(SELF, "")
                for alert in self._alerts.check(event):
                    self._emit(alert)
        if self._messages.ended:
            self._ended()

    def _ended(self) -> None:
        """Handles a death: by its own crash, by a library's, or by a signal."""
        assert self._process is not None
        try:
            code = self._process.wait(0.2)
            how = f"ended with exit code {code}" if code >= 0 else f"died of {signal.Signals(-code).name}"
        except (subprocess.TimeoutExpired, ValueError):
            how = "ended"
        call = self._page.call()
        self._fail(call.library if call else SELF, how, monotonic())

    def _fail(self, culprit: str, how: str, now: float) -> None:
        self._drop()
        self._put_off(now)
        self._failures[culprit] += 1
        # A library dies within the sampler.
        what = how if culprit == SELF or how.startswith("did n") else f"crashed the sampler, which {how}"
        self.failure = TelemetrySource(source=culprit, problem=what)
        if culprit == SELF:
            self._report(SELF, f"{what}; it is restarted")
            return
        if self._failures[culprit] < FAILURES:
            self._report(culprit, f"{what}; it is retried")
            return
        self._banned[culprit] = now + BAN_S
        self._report(culprit, f"{what}; it is disabled for {BAN_S / 60:.0f} min")
        # Everything else need not wait for it.
        self._pause_s, self._start_at = FIRST_PAUSE_S, now + FIRST_PAUSE_S

    def _put_off(self, now: float) -> None:
        if now - self._started > LAST_PAUSE_S:
            self._pause_s = FIRST_PAUSE_S
        self._start_at, self._pause_s = now + self._pause_s, min(LAST_PAUSE_S, 2 * self._pause_s)

    def _drop(self) -> None:
        if self._process is None or self._messages is None:
            return
        self._forget(self._messages.fd)
        self._process.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()
        # Not waited for: a process that hangs in a driver dies only when its call returns.
        self._killed.append(self._process)
        self._process = self._messages = None

    def _report(self, source: str, problem: str) -> None:
        before = self._problems.get(source, "")
        self._problems[source] = problem
        if problem == before:
            return
        self._emit(TelemetrySource(source=source, problem=problem))
        name, kind = ("the sampler", "telemetry") if source == SELF else (source, f"telemetry-{source}")
        if not before:
            text = f"no readings from {name}: {problem}; training continues"
            self._emit(Alert(kind=kind, text=text))
        elif not problem:
            self._emit(Alert(kind=kind, severity="info", text=f"{name} works again", ended=True))

    def end(self) -> None:
        """Kills it, and waits a moment: a driver may hold it."""
        process = self._process
        self._drop()
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
        for killed in self._killed:
            killed.poll()
        self._page.close()
