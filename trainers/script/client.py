"""One rank's connection to the supervisor of its run, for scripts that report by `tuiapp.trainers.script.tracking`.

The training thread appends to a backlog; a thread of this module turns values into numbers, joins steps into batches,
sends them, and sums up the metrics for which the script asks that. If the supervisor is gone, what is reported is
dropped. Values are sent as they were logged, up to `Budget.of_script`; beyond it neighbouring rows share an entry.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import pairwise
from math import inf, isfinite, isnan
from time import monotonic
from typing import Any

import msgspec

from tuiapp.trainers.config.files import printable
from tuiapp.trainers.config.machine import VISIBLE
from tuiapp.trainers.contract.events import Alert, Event, Facts, Metrics, RankStarted
from tuiapp.trainers.contract.metrics import shortest
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.rank.stop_gate import StopGate
from tuiapp.trainers.run import wire
from tuiapp.trainers.run.disk_full_safe_stdio import say
from tuiapp.trainers.run.step_batch import Budget, pack_rows
from tuiapp.trainers.script.media import MediaQueue, Taken

HOW = ("min", "max", "mean", "last", "first", "best", "copy", "none")

FLUSH_INTERVAL_S = 0.2
BACKLOG = 200_000
MAX_NAME = 200
"""Characters of a metric's name."""
AGGREGATES_S = 1.0
"""Least time between two reports of what metrics are summed up to."""
CLOSE_TIMEOUT_S = 5.0
"""Time for a value at the end that a device does not deliver."""
UNREAD_TIMEOUT_S = 60.0
"""Time for a supervisor at the end that lives and does not read."""
SEND_BYTES = 1 << 16
CONNECT_TIMEOUT_S = 5.0

Values = dict[str, Any]
Rows = list[tuple[int, Values]]


class Client:
    """`listener` is the supervisor's socket, that of the run's `address` if "".

    `announce`: reports the device with the first metrics. `beside`: another process is the rank, and says how far it
    has come; this one may be killed at any moment, as a pool's workers are, and sends at once. Raises OSError if no
    supervisor listens.
    """

    def __init__(
        self,
        run: RunDir,
        rank: int,
        listener: str = "",
        *,
        world_size: int = 1,
        announce: bool = True,
        beside: bool = False,
    ) -> None:
        self.rank, self.listener = rank, listener
        self.run_id = run.run_id
        self.backlog: deque[tuple[int, Values] | msgspec.Struct] = deque()
        self.step = 0
        """The furthest step reported."""
        self.gate = StopGate()
        self.failed = ""
        """Why nothing is sent any more."""
        self.singles: set[str] = set()
        """Metrics that come in single precision: 0.1 is sent as such, not as 0.10000000149011612."""
        self._dropped = 0
        self._unsent = 0
        """Rows that are being converted and sent."""
        self._sending = False
        self._moved_at = 0.0
        """When something was converted or sent last."""
        self._budget = Budget.of_script(monotonic(), world_size)
        self._closing = False
        self._beat_due = inf if beside else 0.0
        self._alerted: set[str] = set()
        self.media = MediaQueue(run, rank, world_size)
        self.aggregates = Aggregates()
        self.on_aggregates: Callable[[dict[str, float]], object] = lambda _: None
        """Called with the aggregates that have changed since the last call."""
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

    def show(self, step: int, name: str, taken: list[Taken]) -> None:
        """Reports pictures or texts."""
        if self.failed:
            return
        self.media.add(step, encodable(name, MAX_NAME), taken)
        self.step = max(self.step, step)
        if self._thread is None:
            self._guard(self._flush)

    def close(self) -> None:
        """Sends what is reported so far; gives up if a device or the supervisor hangs, and says what is not sent."""
        self._closing, self._moved_at = True, monotonic()
        with suppress(OSError):
            # Wakes the thread: nothing more is to be received.
            self._socket.shutdown(socket.SHUT_RD)
        if self._thread is not None:
            while self._thread.is_alive():
                limit = UNREAD_TIMEOUT_S if self._sending else CLOSE_TIMEOUT_S
                if monotonic() - self._moved_at > limit:
                    why = "the run's supervisor did not read" if self._sending else "a device did not deliver"
                    rows = self._unsent + sum(isinstance(item, tuple) for item in self.backlog)
                    say(f"{rows:,} rows are not recorded: {why} for {limit:.0f} s")
                    break
                self._thread.join(0.1)
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
            say(f"{self.failed}; training continues, nothing more is reported")

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
                say(text)

    def _flush(self) -> None:
        waiting = [self.backlog.popleft() for _ in range(len(self.backlog))]
        rows = [item for item in waiting if isinstance(item, tuple)]
        structs = [item for item in waiting if not isinstance(item, tuple)]
        messages: list[msgspec.Struct] = [item for item in structs if isinstance(item, Facts)]
        # A stop, a checkpoint and the end come after the steps before them.
        last = [item for item in structs if not isinstance(item, Facts)]
        if (rows or self.media) and not self._announced:
            self._announced = True
            messages.insert(0, _device(self.rank))
        self._unsent = len(rows)
        # What is reported of one step in parts is one row.
        steps = 1 + sum(step != following for (step, _), (following, _) in pairwise(rows))
        window = self._budget.window(steps, monotonic())
        for names, group in _groups(rows, in_order=window == 1):
            messages += self._packed(names, group, window)
        for event in self.media.write(all=self._closing or self._thread is None):
            self._moved_at = monotonic()
            messages.append(event)
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            text = f"rank {self.rank}: {dropped:,} steps were not recorded: the supervisor did not read them in time"
            messages.append(Alert(kind="backlog", rank=self.rank, text=text))
        now = monotonic()
        # The ranks of a job need not agree: the first one's values are the run's.
        if self.rank == 0 and (self._closing or now >= self._aggregates_due) and (taken := self.aggregates.take()):
            self._aggregates_due = now + AGGREGATES_S
            self.on_aggregates(taken)
            # JSON has no NaN and no infinity.
            summary: dict[str, Any] = {
                encodable(name, MAX_NAME): value if isfinite(value) else str(value) for name, value in taken.items()
            }
            messages.append(Facts(summary=summary))
        messages += last
        if self.step and now >= self._beat_due:
            self._beat_due = now + wire.HEARTBEAT_S
            messages.append(wire.Heartbeat(self.rank, self.step, "training"))
        self._send(messages)

    def _packed(self, names: tuple[str, ...], group: Rows, window: int) -> list[Event]:
        columns: dict[str, list[float]] = {}
        alerts: list[Event] = []
        steps = [step for step, _ in group]
        for name in names:
            try:
                column = [float(values[name]) for _, values in group]
                if name in self.singles:
                    column = list(map(shortest, column))
                self._moved_at = monotonic()
            except Exception as error:
                # A failed device raises here too; the training thread meets the same error.
                if name not in self._alerted:
                    self._alerted.add(name)
                    text = f"rank {self.rank}: {name} cannot be read: {type(error).__name__}: {error}"
                    alerts.append(Alert(kind="metric", rank=self.rank, text=text[:500]))
                continue
            columns[encodable(name, MAX_NAME)] = column
            self.aggregates.add(name, column)
            if f"nan {name}" not in self._alerted and not all(map(isfinite, column)):
                self._alerted.add(f"nan {name}")
                step, value = next(entry for entry in zip(steps, column, strict=True) if not isfinite(entry[1]))
                text = f"rank {self.rank}: {name} is {value} at step {step:,}"
                alerts.append(Alert(kind="nan", severity="error", rank=self.rank, step=step, text=text))
        return [*pack_rows(self.rank, steps, columns, window), *alerts] if columns else alerts

    def _send(self, messages: list[msgspec.Struct]) -> None:
        out, rows = bytearray(), 0
        for message in messages:
            out += wire.encode(message)
            if isinstance(message, Metrics):
                rows += sum(message.rows or [1] * len(message))
            if len(out) >= SEND_BYTES:
                self._write(out, rows)
                out, rows = bytearray(), 0
        self._write(out, rows)

    def _write(self, data: bytes | bytearray, rows: int) -> None:
        self._sending, view = True, memoryview(data)
        while view:
            view = view[self._socket.send(view) :]
            self._moved_at = monotonic()
        self._sending = False
        self._unsent -= rows


class Aggregates:
    """Takes all values of the metrics that are defined, in their order; NaN counts for none but the last."""

    def __init__(self) -> None:
        self._defined: dict[str, list[str]] = {}
        """A metric's name, or a pattern of names → how."""
        self._values: dict[tuple[str, str], tuple[float, int]] = {}
        """(Metric, aggregate) → its value, and how many values that is of."""
        self._before: dict[str, float] = {}
        """What they had come to in an earlier part of the run."""
        self._changed: dict[str, float] = {}

    def define(self, name: str, summary: str, goal: str = "") -> None:
        """Raises ValueError for a summary that is none of `HOW`, or several of them, separated by commas."""
        ways = [way.strip() for way in summary.split(",") if way.strip()]
        if unknown := [way for way in ways if way not in HOW]:
            raise ValueError(f"summary={unknown[0]!r} is none of {', '.join(HOW)}")
        best = "max" if goal.startswith("max") else "min"
        self._defined[name] = [{"best": best, "copy": "last"}.get(way, way) for way in ways]

    def restore(self, summary: Mapping[str, object]) -> None:
        """Goes on from the summary of an earlier part of the run; means begin anew."""
        self._before = {
            name: float(value)
            for name, value in summary.items()
            if isinstance(value, int | float) or value in ("nan", "inf", "-inf")
        }

    def add(self, name: str, values: Sequence[float]) -> None:
        """Takes values of a metric; those that are not defined are passed over."""
        for how, known_as in self._ways(name):
            begin = (self._before[known_as], 1) if known_as in self._before and how != "mean" else (0.0, 0)
            before, count = self._values.get((known_as, how), begin)
            for value in values:
                if isnan(value) and how != "last":
                    continue
                if not count or how == "last":
                    before = value
                elif how == "mean":
                    before += (value - before) / (count + 1)
                elif how in ("min", "max"):
                    before = min(before, value) if how == "min" else max(before, value)
                count += 1
            if count:
                self._values[known_as, how] = before, count
                self._changed[known_as] = before

    def take(self) -> dict[str, float]:
        """Returns what of the summary has changed since the last time."""
        changed, self._changed = self._changed, {}
        return changed

    def _ways(self, name: str) -> list[tuple[str, str]]:
        """Returns how a metric is summed up, and as what: by its own definition, or else by the last pattern."""
        patterns = [pattern for pattern in reversed(self._defined) if "*" in pattern and fnmatchcase(name, pattern)]
        for known_as in [name, *patterns]:
            if known_as in self._defined:
                ways = [way for way in self._defined[known_as] if way != "none"]
                return [(way, name if len(ways) == 1 else f"{name}/{way}") for way in ways]
        return []


def _groups(rows: Rows, *, in_order: bool) -> Iterator[tuple[tuple[str, ...], Rows]]:
    """Returns rows of the same metrics, whatever was reported between them.

    `in_order`: those of each metric stay in the order in which they were logged.
    """
    groups: dict[tuple[str, ...], Rows] = {}
    in_group: dict[str, tuple[str, ...]] = {}
    before: tuple[str, ...] = ()
    for row in rows:
        names = tuple(row[1])
        if in_order and names != before:
            before = names
            for name in names:
                other = in_group.get(name, names)
                if other != names and (group := groups.pop(other, None)):
                    yield other, group
                in_group[name] = names
        groups.setdefault(names, []).append(row)
    yield from groups.items()


def encodable(text: Any, limit: int) -> str:
    """Returns any object as text of about `limit` characters that UTF-8 can hold."""
    return printable(str(text)[:limit])


def _device(rank: int) -> RankStarted:
    """Returns the device that the script uses, as far as its framework tells without initializing one."""
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
