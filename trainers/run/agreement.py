"""The supervisor's side of an agreement on a step; `stop_gate` is the ranks' side."""

from __future__ import annotations

from collections.abc import Sequence

from tuiapp.trainers.run import wire
from tuiapp.trainers.run.ranks import Voter


class Agreement:
    def __init__(self) -> None:
        self._round = 0
        self._open = False
        self._stop = self._save = self._due = False
        self._profile = 0
        self._votes: dict[Voter, int] = {}
        self._reached = 0
        """The last step of those that have left."""
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
        """A rank takes part from now on: an open vote begins again with it, and it is told of the last one."""
        if self._open:
            self.propose(live)
        elif self._decided is not None:
            voter.send(self._decided)

    def leave(self, step: int, live: Sequence[Voter]) -> None:
        """A rank has left after a step: the others do not wait for its vote, and reach at least that step."""
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
