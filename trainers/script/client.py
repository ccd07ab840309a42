"""One rank's connection to the supervisor of its run, for scripts that report by `tuiapp.trainers.script.tracking`.

The training thread appends to a backlog; a thread of this module turns values into numbers, joins steps into batches
and sends them. If the supervisor is gone, what is reported is dropped.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from math import inf, isfinite
from time import monotonic
from typing import Any

import msgspec

from tuiapp.trainers.config.files import printable
from tuiapp.trainers.config.visible_gpus import VISIBLE
from tuiapp.trainers.contract.events import Alert, Event, Facts, RankStarted
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.rank.stop_gate import StopGate
from tuiapp.trainers.run import wire
from tuiapp.trainers.run.step_batch import Budget, pack
from tuiapp.trainers.script.aggregates import Aggregates

FLUSH_INTERVAL_S = 0.2
BACKLOG = 200_000
MAX_NAME = 200
"""Characters of a metric's name."""
AGGREGATES_S = 1.0
"""Between two reports of what metrics are summed up to."""
CLOSE_TIMEOUT_S = 5.0
CONNECT_TIMEOUT_S = 5.0

Values = dict[str, Any]


class Client:
    """`listener` is the supervisor's socket, that of the run's `address` if "".

    `announce`: reports the device with the first metrics. `beside`: another process is the rank, and says how far it
    has come; this one may be killed at any moment, as a pool's workers are, and sends at once. Raises OSError if no
    supervisor listens.
    """

    def __init__(
        self, run: RunDir, rank: int, listener: str = "", *, announce: bool = True, beside: bool = False
    ) -> None:
        self.rank, self.listener = rank, listener
        self.run_id = run.run_id
        self.backlog: deque[tuple[int, Values] | msgspec.Struct] = deque()
        self.step = 0
        """The furthest step reported."""
        self.gate = StopGate()
        self.failed = ""
        """Why nothing is sent any more."""
        self._dropped = 0
        self._budget = Budget(monotonic())
        self._closing = False
        self._beat_due = inf if beside else 0.0
        self._told: set[str] = set()
        self.aggregates = Aggregates()
        self.on_aggregates: Callable[[dict[str, float]], object] = lambda _: None
        """Told what they have come to since the last time."""
        self._aggregates_due = 0.0
        self._announced = beside or not announce
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(CONNECT_TIMEOUT_S)
        try:
            self._socket.connect(f"\0{listener or run.address.read_text()}")
            self._socket.settimeout(None)
            self._socket.sendall(wire.encode(wire.Hello(rank)))
        except OSError:
            self._socket.close()
            raise
        self._thread: threading.Thread | None = None
        if not beside:
            self._thread = threading.Thread(
                target=self._guard, args=[self._answer_and_flush], name="tuiapp", daemon=True
            )
            self._thread.start()

    def add(self, step: int, values: Values) -> None:
        """Reports numbers, or arrays of one number, on any device; they must not be changed afterwards."""
        if self.failed:
            return
        if len(self.backlog) < BACKLOG:
            self.backlog.append((step, values))
            self.step = max(self.step, step)
            if self._thread is None:
                self._guard(self._flush)
        else:
            self._dropped += 1

    def close(self) -> None:
        """Sends what is reported so far; gives up after `CLOSE_TIMEOUT_S`, in case a device or the supervisor hangs."""
        self._closing = True
        with suppress(OSError):
            # Wakes the thread: nothing more is to be received.
            self._socket.shutdown(socket.SHUT_RD)
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT_S)
        elif not self.failed:
            self._guard(self._flush)
        self._socket.close()

    def abandon(self) -> None:
        """Ends it in a forked child, where its thread is missing; the parent's connection stays."""
        self.failed = "forked"
        os.close(self._socket.detach())

    def _guard(self, work: Callable[[], None]) -> None:
        """Whatever fails in it, the script trains on."""
        try:
            work()
        except OSError as error:
            self.failed = self.failed or f"the run's supervisor is gone ({error.strerror or error})"
        except Exception as error:
            self.failed = f"{type(error).__name__}: {error}"
        if self.failed or self._closing:
            self.gate.release()
            self.backlog.clear()
        if self.failed:
            print(f"tuiapp: {self.failed}; training continues, nothing more is reported", file=sys.stderr)

    def _answer_and_flush(self) -> None:
        messages = wire.control_messages(self._socket.fileno())
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while True:
            if poll.poll(0 if self._closing else 1000 * FLUSH_INTERVAL_S):
                for message in messages.read():
                    self._answer(message)
                if messages.ended and not self._closing:
                    self.failed = "the run's supervisor is gone"
                    return
            closing = self._closing
            self._flush()
            if closing:
                return

    def _answer(self, message: wire.ToRank) -> None:
        match message:
            case wire.Propose(vote_round):
                self._send([wire.Vote(self.rank, self.gate.vote(), vote_round)])
            case wire.Agreed(step, stop, save):
                self.gate.decide(step, stop=stop, save=save)
            case wire.Say(text):
                print(f"tuiapp: {text}", file=sys.stderr)

    def _flush(self) -> None:
        waiting = [self.backlog.popleft() for _ in range(len(self.backlog))]
        messages: list[msgspec.Struct] = []
        last: list[msgspec.Struct] = []
        # Values of the same names make one event, whatever was reported between them.
        groups: dict[tuple[str, ...], list[tuple[int, Values]]] = {}
        for item in waiting:
            if isinstance(item, msgspec.Struct):
                # A stop, a checkpoint and the end come after the steps before them.
                (messages if isinstance(item, Facts) else last).append(item)
                continue
            names = tuple(item[1])
            group = groups.setdefault(names, [])
            if group and item[0] <= group[-1][0]:
                messages += self._packed(names, group)
                group.clear()
            group.append(item)
        if groups and not self._announced:
            self._announced = True
            messages.insert(0, _device(self.rank))
        for names, group in groups.items():
            messages += self._packed(names, group)
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            text = f"rank {self.rank}: {dropped:,} steps were not recorded: the supervisor did not read them in time"
            messages.append(Alert(kind="backlog", rank=self.rank, text=text))
        now = monotonic()
        # The ranks of a job need not agree: the first one's values are the run's.
        if self.rank == 0 and (self._closing or now >= self._aggregates_due) and (taken := self.aggregates.take()):
            self._aggregates_due = now + AGGREGATES_S
            self.on_aggregates(taken)
            messages.append(Facts(summary={encodable(name, MAX_NAME): value for name, value in taken.items()}))
        messages += last
        if self.step and now >= self._beat_due:
            self._beat_due = now + wire.HEARTBEAT_S
            messages.append(wire.Heartbeat(self.rank, self.step, "training"))
        self._send(messages)

    def _packed(self, names: tuple[str, ...], group: list[tuple[int, Values]]) -> list[Event]:
        columns: dict[str, list[float]] = {}
        alerts: list[Event] = []
        steps = [step for step, _ in group]
        for name in names:
            try:
                column = [float(values[name]) for _, values in group]
            except Exception as error:
                # A failed device raises here too; the training thread meets the same error.
                if name not in self._told:
                    self._told.add(name)
                    text = f"rank {self.rank}: {name} cannot be read: {type(error).__name__}: {error}"
                    alerts.append(Alert(kind="metric", rank=self.rank, text=text[:500]))
                continue
            columns[encodable(name, MAX_NAME)] = column
            if self.aggregates:
                self.aggregates.add(name, column)
            if f"nan {name}" not in self._told and not all(map(isfinite, column)):
                self._told.add(f"nan {name}")
                step, value = next(one for one in zip(steps, column, strict=True) if not isfinite(one[1]))
                text = f"rank {self.rank}: {name} is {value} at step {step:,}"
                alerts.append(Alert(kind="nan", severity="error", rank=self.rank, step=step, text=text))
        if not columns:
            return alerts
        try:
            return [pack(self.rank, steps, columns, self._budget.window(len(steps), monotonic())), *alerts]
        except ValueError as error:  # steps too far apart
            return [Alert(kind="metric", rank=self.rank, text=f"rank {self.rank}: {error}"), *alerts]

    def _send(self, messages: list[msgspec.Struct]) -> None:
        if messages:
            self._socket.sendall(b"".join(map(wire.encode, messages)))


def encodable(text: Any, limit: int) -> str:
    """Any object as text of about `limit` characters that UTF-8 can hold."""
    return printable(str(text)[:limit])


def _device(rank: int) -> RankStarted:
    """The device that the script uses, as far as its framework can tell without being asked to initialize one."""
    device, name, uuid = "cpu", "", ""
    with suppress(Exception):
        if (torch := sys.modules.get("torch")) and torch.cuda.is_initialized():
            index = torch.cuda.current_device()
            properties = torch.cuda.get_device_properties(index)
            part = f"MIG-{properties.uuid}"
            uuid = part if part in os.environ.get(VISIBLE, "") else f"GPU-{properties.uuid}"
            device, name = f"cuda:{index}", properties.name
        elif (bridge := sys.modules.get("jax._src.xla_bridge")) and bridge.backends_are_initialized():
            import jax

            first = jax.local_devices()[0]
            device, name = f"{first.platform}:{first.id}", first.device_kind
    return RankStarted(rank=rank, pid=os.getpid(), device=device, device_name=name, uuid=uuid)
