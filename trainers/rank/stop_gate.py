"""Lets all ranks stop, or save a checkpoint, after the same step, at no cost per step.

A rank that stops one step before the others leaves them in a collective forever, and a collective vote at every step
costs every step. So the supervisor asks over its pipes, when needed: each rank's control thread promises to start no
further step and sends the last one started; the supervisor answers with the highest, up to which the others then
continue. Votes come from the control thread, so a rank that waits in a collective votes too.
"""

from __future__ import annotations

import threading


class StopGate:
    """A rank's side of the agreement; `done` is the step it resumes from, 0 in a new run."""

    def __init__(self, done: int = 0) -> None:
        self._changed = threading.Condition()
        self.started = done
        """The last step that this rank has started."""
        self._held = False
        self._last: int | None = None
        self._saves: set[int] = set()
        self._due: set[int] = set()
        """Steps: after the first epoch that ends later than one of them the state is saved."""
        self._profiles: dict[int, int] = {}
        """Step → how many after it are profiled."""

    def enter(self, step: int) -> bool:
        """Waits before a step while a vote is open; returns False if the run stops before this step."""
        with self._changed:
            while self._held and self._last is None and step > self.started:
                self._changed.wait()
            if self._last is not None and step > self._last:
                return False
            self.started = max(self.started, step)
            return True

    def saves_before(self, step: int) -> bool:
        """Waits as `enter` does, and tells whether to save the state before this step; True once per request."""
        self.enter(step)
        with self._changed:
            wanted = step - 1 in self._saves
            self._saves.discard(step - 1)
            return wanted

    def due_after(self, step: int) -> bool:
        """Tells whether to save the state after an epoch that ends with this step; True once per request."""
        with self._changed:
            past = {due for due in self._due if due < step}
            self._due -= past
            return bool(past)

    def profiles_before(self, step: int) -> int:
        """Returns how many steps to profile from this one on, 0 unless asked for; call after `enter`."""
        with self._changed:
            return self._profiles.pop(step - 1, 0)

    def vote(self) -> int:
        """Holds the training thread at its next step; returns the last step started."""
        with self._changed:
            self._held = True
            return self.started

    def decide(self, step: int, *, stop: bool = True, save: bool = False, profile: int = 0, due: bool = False) -> None:
        """Releases the training thread at `step`, the highest that any rank has started.

        With `stop` no rank starts another one; with `save` all ranks save a checkpoint after it, with `due` after the
        next epoch that ends later; `profile` steps after it are profiled.
        """
        with self._changed:
            if due:
                self._due.add(step)
            if profile:
                self._profiles[step] = profile
            if save:
                self._saves.add(step)
            if stop:
                self._last = step
            self.release()

    def release(self) -> None:
        """Lets the training thread go on to its next step."""
        with self._changed:
            self._held = False
            self._changed.notify_all()
