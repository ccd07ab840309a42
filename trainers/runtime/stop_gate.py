"""How all ranks come to stop, or to save a checkpoint, after the same step, at no cost per step.

A rank that stops one step before the others leaves them in a collective for ever. Asking in a collective of its own
at every step costs every step; so the supervisor asks over its pipes, when it has to: each rank's control thread
promises to start no further step and names the last one it has started; the supervisor answers with the highest, up
to which the others then go on. Votes come from the control thread, so a rank that waits in a collective votes too.
"""

from __future__ import annotations

import threading


class StopGate:
    """A rank's side of the agreement.

    Args:
        done: The step of the checkpoint that the rank goes on from; 0 when it starts anew.
    """

    def __init__(self, done: int = 0) -> None:
        self._changed = threading.Condition()
        self._started = done
        self._held = False
        self._last: int | None = None
        self._saves: set[int] = set()

    @property
    def started(self) -> int:
        """The last step that the training thread has started."""
        return self._started

    def enter(self, step: int) -> bool:
        """The training thread is about to start a step; waits while a vote is open.

        Returns:
            False when the run stops before this step.
        """
        with self._changed:
            while self._held and self._last is None and step > self._started:
                self._changed.wait()
            if self._last is not None and step > self._last:
                return False
            self._started = max(self._started, step)
            return True

    def saves_before(self, step: int) -> bool:
        """The same, for the question whether a checkpoint was asked for; says yes once for each.

        Returns:
            True when the state after the step before this one shall be saved.
        """
        self.enter(step)
        with self._changed:
            wanted = step - 1 in self._saves
            self._saves.discard(step - 1)
            return wanted

    def vote(self) -> int:
        """Hold the training thread at its next step.

        Returns:
            The last step it has started.
        """
        with self._changed:
            self._held = True
            return self._started

    def decide(self, step: int, *, stop: bool = True, save: bool = False) -> None:
        """Let the training thread go on: up to and including a step, if it is to stop there.

        Args:
            step: The highest that any rank has started.
            stop: No rank starts another one.
            save: All ranks save a checkpoint after it.
        """
        with self._changed:
            if save:
                self._saves.add(step)
            if stop:
                self._last = step
            self._held = False
            self._changed.notify_all()

    def release(self) -> None:
        """Let the training thread go: the supervisor is gone."""
        with self._changed:
            self._held = False
            self._changed.notify_all()
