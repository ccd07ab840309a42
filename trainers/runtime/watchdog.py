"""Reports ranks that make no progress: a hang, with the stacks of all ranks, or a process stopped by a signal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from trainers.contract.events import Alert, Event, LogLine, Stacks
from trainers.contract.wording import describe_ranks
from trainers.runtime import wire
from trainers.runtime.hangs import HangWatch, Standing, describe
from trainers.runtime.stacks import Asked, StackDump, suspect, suspect_collective

LOOK_S = 1.0


class Rank(Asked, Protocol):
    def is_stopped(self) -> bool:
        """Whether a signal, or a debugger, has stopped it."""


class Watchdog:
    """`place_of` returns a rank's node as text, "" on one machine; `away` each silent node's ranks, with its name."""

    def __init__(
        self,
        emit: Callable[[Event], None],
        place_of: Callable[[int], str] = lambda rank: "",
        away: Callable[[], Mapping[int, str]] = dict,
    ) -> None:
        self._emit, self._place_of, self._find_away = emit, place_of, away
        self._away: Mapping[int, str] = {}
        self._watch = HangWatch()
        self._looked = 0.0
        self._dump: StackDump | None = None
        self._hang: tuple[float, dict[int, Standing], list[int]] = 0.0, {}, []
        self._late: int | None = None
        self._stopped: set[int] = set()

    def hear(self, heartbeat: wire.Heartbeat, now: float) -> None:
        self._watch.hear(heartbeat.rank, Standing(heartbeat.step, heartbeat.phase), now)

    def hear_stacks(self, stacks: Stacks) -> None:
        """Takes the stacks of a rank on another node; they are dropped if nobody waits for them any more."""
        if self._dump is not None:
            self._dump.hear(stacks)

    def forget(self, rank: int) -> None:
        self._watch.forget(rank)
        self._stopped.discard(rank)

    def advance(self, now: float, live: Mapping[int, Rank]) -> None:
        if self._dump is not None and self._dump.is_complete(now):
            self._report_hang(self._dump)
            self._dump = None
        if now - self._looked < LOOK_S:
            return
        self._looked = now
        silent = self._watch.look(now, [number for number, rank in live.items() if rank.is_stopped()])
        self._report_stopped(now, live)
        if (lasted := self._watch.over(now)) is not None:
            if self._dump is not None:
                # A rank made progress before all have written: an alert that ends must have begun.
                self._report_hang(self._dump)
                self._dump = None
            text = f"the run continues after {lasted:.0f} s without progress"
            self._emit(Alert(kind="hang", severity="info", rank=self._late, text=text, ended=True))
        if silent is not None:
            # Recorded now: the report describes the moment their stacks were requested.
            self._hang = silent, self._watch.standings(), self._watch.behind()
            self._away = self._find_away()
            self._dump = StackDump(live, now)

    def _report_hang(self, dump: StackDump) -> None:
        silent, standings, behind = self._hang
        stacks = dump.read()
        for one in stacks:
            self._emit(one)
        if mute := sorted(set(standings) - {one.rank for one in stacks} - set(self._away)):
            who = describe_ranks(mute, self._place_of)
            self._emit(LogLine(rank=None, stream="run", text=f"{who} gave no Python stacks"))
        if self._away:
            behind = []
        suspicion = None if behind or self._away else suspect(stacks, self._place_of)
        words = suspicion.words if suspicion else ""
        text = describe(silent, standings, behind, words, self._place_of, self._away)
        behind = suspicion.ranks if suspicion else behind
        if not self._away and (collective := suspect_collective(stacks, self._place_of)):
            text = f"{text}; {collective.words}"
            behind = behind or collective.ranks
        self._late = behind[0] if len(behind) == 1 else None
        step = min((standing.step for standing in standings.values()), default=None)
        several = sorted(self._away) or (behind if self._late is None else [])
        self._emit(Alert(kind="hang", severity="error", rank=self._late, ranks=several, step=step, text=text))

    def _report_stopped(self, now: float, live: Mapping[int, Rank]) -> None:
        stopped = set(self._watch.stopped(now)) & set(live)
        for number in sorted(stopped - self._stopped):
            who, there = describe_ranks([number], self._place_of), ", there" if self._place_of(number) else ""
            cure = f"To continue{there}: kill -CONT {live[number].pid}"
            text = f"{who} is stopped (SIGSTOP, or a debugger), the others wait. {cure}"
            self._emit(Alert(kind="stopped", rank=number, text=text))
        for number in sorted(self._stopped - stopped):
            text = f"{describe_ranks([number], self._place_of)} is no longer stopped"
            self._emit(Alert(kind="stopped", severity="info", rank=number, text=text, ended=True))
        self._stopped = stopped
