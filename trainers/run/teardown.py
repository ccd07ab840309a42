"""Ends a run before its last step: by agreement, by request, in the end by force.

For a requested stop the ranks first agree on a step (see `stop_gate`), and may save a checkpoint. Ranks that have not
ended by the deadline get SIGTERM, then SIGKILL. When a rank fails, the others get a moment to fail by themselves, so
that their errors are on record, and are then ended.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence

from tuiapp.trainers.contract.events import PRUNED, Event, LogLine, StopRequested
from tuiapp.trainers.run import wire
from tuiapp.trainers.run.ranks import Voter

STOP_GRACE_S = 30.0
"""Time from a stop request to SIGTERM: lets the current step, and an evaluation, finish."""
SAVE_GRACE_S = 120.0
"""Time from a rank's report that it saves a checkpoint, while the run stops, to SIGTERM."""
SETTLE_S = 1.0
"""Time from the first failure to SIGTERM for the others."""
CAUSE_SETTLE_S = 5.0
"""Seconds to wait after a failure that looks like a consequence: the rank that is the cause may be on its way out."""
TERM_GRACE_S = 2.0


class Teardown:
    """Ends ranks; with `signal_grace_s` those of a script, which take no part in agreements.

    A stop sends them SIGTERM at once, and SIGKILL after so many seconds.
    """

    def __init__(self, agreement: Agreement, signal_grace_s: float | None = None) -> None:
        self._agreement = agreement
        self._signal_grace_s = signal_grace_s
        self.at_once = False
        """Whether somebody has asked to stop without waiting for anything."""
        self.stopping = False
        self.killing = False
        """Whether ranks are being ended by signals: their exits are not reported."""
        self.failed = False
        self._by = ""
        self._term_at: float | None = None
        self._kill_at: float | None = None
        self._killed: set[int] = set()
        """Ranks that were sent SIGKILL, which is said once of each."""

    def stop(self, request: StopRequested, now: float, voters: Sequence[Voter]) -> bool:
        """Begins to stop, or to stop at once if the request says `now`, which skips the agreement.

        Returns whether the ranks agree on a step, and so get no signal as long as they keep to it.
        """
        self.at_once |= request.now
        agreed = False
        if not request.now and not self.stopping and self._agreement.propose(voters, stop=True, save=request.save):
            agreed = True
            self._term_at = min(self._term_at or now + STOP_GRACE_S, now + STOP_GRACE_S)
        elif request.now or not self.stopping:
            self._term_at = now
            if self._kill_at is not None and request.now:
                self._kill_at = min(self._kill_at, now + TERM_GRACE_S)
        self._by = self._by or request.by
        self.stopping = True
        return agreed

    def interrupt(self, request: StopRequested) -> None:
        """Stops ranks that somebody else ends: none is signalled."""
        self._by = self._by or request.by
        self.at_once = self.stopping = self.killing = True

    def give_time_to_save(self, now: float) -> None:
        """Gives a stop more time to wait for a rank that has begun to save a checkpoint."""
        waits = self.stopping and not self.failed and not self.killing
        if waits and self._term_at is not None and self._term_at > now:
            self._term_at = max(self._term_at, now + SAVE_GRACE_S)

    def fail(self, now: float, *, consequence: bool = False) -> None:
        self.failed = True
        settle_s = CAUSE_SETTLE_S if consequence else SETTLE_S
        self._term_at = min(self._term_at or now + settle_s, now + settle_s)

    def advance(self, now: float, live: Sequence[Voter], emit: Callable[[Event], None]) -> None:
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = now + TERM_GRACE_S
            for rank in live:
                if rank.rank not in self._killed:
                    self._killed.add(rank.rank)
                    text = f"rank {rank.rank} did not end on SIGTERM: sent SIGKILL"
                    emit(LogLine(rank=None, stream="run", text=text))
                rank.kill(signal.SIGKILL)
        elif self._kill_at is None and self._term_at is not None and now >= self._term_at and live:
            self.killing = True
            grace = self._signal_grace_s
            self._kill_at = now + (TERM_GRACE_S if grace is None or self.at_once or self.failed else grace)
            for rank in live:
                rank.kill(signal.SIGTERM)

    def reason(self, step: int) -> str:
        by = {
            "command": "on request",
            PRUNED: PRUNED,
            "SIGTERM": "by SIGTERM",
            "removal": "because its directory was removed or moved",
            "nan_policy": "because a loss was not finite (nan_policy)",
        }.get(self._by, f"by {self._by}")
        where = f", after step {step:,}" if step or self._signal_grace_s is None else ""
        forced = self.killing and (self.at_once or self._signal_grace_s is None)
        return f"{by}{where}" + (", at once" if forced else "")


class Agreement:
    """The supervisor's side of the agreement on a step, of which `stop_gate` is a rank's."""

    def __init__(self) -> None:
        self._round = 0
        self._open = False
        self._stop = self._save = self._due = False
        self._profile = 0
        self._votes: dict[Voter, int] = {}
        self._reached = 0
        """The last step of the ranks that have left."""
        self._decided: wire.Agreed | None = None

    def propose(
        self, live: Sequence[Voter], *, stop: bool = False, save: bool = False, profile: int = 0, due: bool = False
    ) -> bool:
        """Asks all live ranks for their steps; merges the request with that of an open vote. False if none agrees."""
        if not any(voter.agrees for voter in live):
            return False
        self._round += 1
        self._open = True
        self._stop, self._save, self._due = self._stop or stop, self._save or save, self._due or due
        self._profile = profile or self._profile
        self._votes.clear()
        for voter in live:
            if voter.agrees:
                voter.send(wire.Propose(self._round))
        return True

    def count(self, vote: wire.Vote, voter: Voter, live: Sequence[Voter]) -> None:
        if vote.round == self._round:
            self._votes[voter] = vote.step
            self._decide(live)

    def join(self, voter: Voter, live: Sequence[Voter]) -> None:
        """Takes in a rank: an open vote begins again with it, and it is told of the last one."""
        if self._open:
            self.propose(live)
        elif self._decided is not None:
            voter.send(self._decided)

    def leave(self, step: int, live: Sequence[Voter]) -> None:
        """Leaves out a rank that has ended after a step: the others do not wait for its vote, and reach that step."""
        self._reached = max(self._reached, step)
        self._decide(live)
        if not any(voter.agrees for voter in live):
            # Who begins now counts its steps anew.
            self._reached = 0
            stopped = self._decided is not None and self._decided.stop
            self._decided = wire.Agreed(0, stop=True, save=False) if stopped else None

    def _decide(self, live: Sequence[Voter]) -> None:
        if not self._open or any(voter.agrees and voter not in self._votes for voter in live):
            return
        step = max([*self._votes.values(), self._reached])
        self._decided = wire.Agreed(step, stop=self._stop, save=self._save, profile=self._profile, due=self._due)
        for voter in live:
            voter.send(self._decided)
        self._open = self._save = self._due = False
        self._profile = 0
