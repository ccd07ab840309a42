"""How a run is brought to an end before its last step: agreed, asked, and in the end forced.

A stop on request is first agreed between the ranks (see `stop_gate`). Ranks that have not ended by the deadline get
SIGTERM, and SIGKILL after that. When a rank fails, the others get a moment to fail by themselves, so that what they
say is on record, and are ended then.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from typing import Protocol

from trainers.contract.events import Event, LogLine, StopRequested
from trainers.runtime import wire

STOP_GRACE_S = 30.0
"""From a stop request to SIGTERM: the step under way, and an evaluation, may finish."""
SETTLE_S = 1.0
"""From the first failure to SIGTERM for the others."""
TERM_GRACE_S = 2.0
"""From SIGTERM to SIGKILL."""


class Rank(Protocol):
    """What a teardown needs of a rank's process."""

    rank: int

    def send(self, message: wire.ToRank) -> None:
        """Tell it something, without waiting."""

    def kill(self, number: signal.Signals) -> None:
        """Send a signal to its whole session."""


class Teardown:
    """Where a run stands on its way to an early end."""

    def __init__(self) -> None:
        self.stopping = False
        """Somebody asked for an end."""
        self.killing = False
        """Ranks are being ended by signals: how they end is no news."""
        self._by = ""
        self._votes: dict[int, int] = {}
        self._decided = False
        self._term_at: float | None = None
        self._kill_at: float | None = None

    def stop(self, request: StopRequested, now: float, live: Sequence[Rank]) -> None:
        """Begin to stop, or go over to stopping now.

        Args:
            request: Whose; its `now` skips the agreement.
            now: Seconds on the monotonic clock.
            live: The ranks that still run.
        """
        if request.now:
            self._term_at = now
        elif not self.stopping:
            self._term_at = min(self._term_at or now + STOP_GRACE_S, now + STOP_GRACE_S)
            for rank in live:
                rank.send(wire.Propose())
        self._by = self._by or request.by
        self.stopping = True

    def count_vote(self, vote: wire.Vote, live: Sequence[Rank]) -> None:
        """Take a rank's vote; the last one decides after which step all stop."""
        self._votes[vote.rank] = vote.step
        if not self._decided and all(rank.rank in self._votes for rank in live):
            self._decided = True
            for rank in live:
                rank.send(wire.StopAfter(max(self._votes.values())))

    def fail(self, now: float) -> None:
        """A rank has failed: the others follow."""
        if self._term_at is None or self._term_at > now + SETTLE_S:
            self._term_at = now + SETTLE_S

    def advance(self, now: float, live: Sequence[Rank], say: Callable[[Event], None]) -> None:
        """Do what is due."""
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = now + TERM_GRACE_S
            for rank in live:
                say(LogLine(rank=None, stream="run", text=f"rank {rank.rank} did not end on SIGTERM: SIGKILL"))
                rank.kill(signal.SIGKILL)
        elif self._kill_at is None and self._term_at is not None and now >= self._term_at and live:
            self.killing = True
            self._kill_at = now + TERM_GRACE_S
            for rank in live:
                rank.kill(signal.SIGTERM)

    def reason(self, step: int) -> str:
        """Why the run stopped, in words."""
        by = {
            "command": "on request",
            "SIGTERM": "by SIGTERM",
            "removal": "because its directory was removed",
            "nan_policy": "because a loss was not finite (nan_policy = stop)",
        }.get(self._by, f"by {self._by}")
        return f"{by}, after step {step:,}" + (", at once" if self.killing else "")
