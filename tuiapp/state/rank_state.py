"""What is known of one rank."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from trainers.contract.events import PhaseName, RankFailed, Steps
from tuiapp.state.series import Series

PACE_WINDOW_S = 15.0
"""Training time over which a rank's speed is averaged: long enough to be calm, short enough to follow a change."""

SILENT_AFTER_S = 10.0
"""A rank in training that reports nothing for so long is called silent."""


@dataclass(slots=True)
class _Batch:
    time: float
    last_step: int
    steps: int
    seconds: float
    examples: int


class Pace:
    """How fast a rank has been going lately, and where it was when."""

    def __init__(self) -> None:
        self._batches: deque[_Batch] = deque(maxlen=256)
        self._steps = self._examples = 0
        self._seconds = 0.0

    def add(self, time: float, last_step: int, steps: int, seconds: float, examples: int) -> None:
        """Take in a batch of steps.

        Args:
            time: When it was reported.
            last_step: The last of its steps.
            steps: How many they are.
            seconds: How long all of them took together.
            examples: How many examples went through the rank.
        """
        if len(self._batches) == self._batches.maxlen:
            self._forget()
        self._batches.append(_Batch(time, last_step, steps, seconds, examples))
        self._steps += steps
        self._seconds += seconds
        self._examples += examples
        while len(self._batches) > 2 and self._seconds - self._batches[0].seconds > PACE_WINDOW_S:
            self._forget()

    def _forget(self) -> None:
        old = self._batches.popleft()
        self._steps -= old.steps
        self._seconds -= old.seconds
        self._examples -= old.examples

    @property
    def has_steps(self) -> bool:
        """Whether any were taken in."""
        return self._steps > 0

    @property
    def seconds_per_step(self) -> float | None:
        """Mean over the window; None before the first step."""
        return self._seconds / self._steps if self._steps > 0 and self._seconds > 0 else None

    @property
    def examples_per_second(self) -> float | None:
        """Mean over the window; None before the first step."""
        return self._examples / self._seconds if self._seconds > 0 else None

    def step_at(self, time: float) -> float:
        """The step that the rank had reached at that time, as far as its reports tell."""
        later: _Batch | None = None
        for batch in reversed(self._batches):
            if batch.time <= time:
                if later is None or later.time <= batch.time:
                    return batch.last_step
                part = (time - batch.time) / (later.time - batch.time)
                return batch.last_step + part * (later.last_step - batch.last_step)
            later = batch
        return later.last_step - later.steps if later else 0


@dataclass(slots=True)
class RankState:
    """One rank process, as its events tell."""

    rank: int
    pid: int | None = None
    device: str = ""
    device_name: str = ""
    uuid: str = ""
    """Of its GPU; "" on the CPU."""
    phase: PhaseName | None = None
    step: int = 0
    """Its last reported step; before the first, that of the checkpoint it goes on from, or 0."""
    loss: float | None = None
    """Of that step; None where it was not finite, or before the first step."""
    learning_rate: float | None = None
    last_time: float = 0.0
    """When it was last heard of, in seconds since the epoch; 0 before that."""
    cpu_percent: float | None = None
    """100 is one core."""
    rss_bytes: int | None = None
    threads: int | None = None
    failure: RankFailed | None = None
    losses: Series = field(default_factory=Series)
    pace: Pace = field(default_factory=Pace)

    def add_steps(self, event: Steps) -> None:
        """Take in a batch of the rank's steps."""
        losses, counts = event.losses, event.counts
        if not losses or (counts is not None and len(counts) != len(losses)):
            return
        self.losses.extend(event.first_step, losses, counts, event.losses_min, event.losses_max)
        if counts is None:
            steps, seconds = len(losses), sum(event.seconds)
        else:
            steps = sum(counts)
            seconds = sum(each * count for each, count in zip(event.seconds, counts, strict=False))
        last_step = event.first_step + steps - 1
        self.pace.add(event.time, last_step, steps, seconds, sum(event.examples))
        if last_step >= self.step:
            self.step = last_step
            self.loss = losses[-1]
            if event.learning_rates:
                self.learning_rate = event.learning_rates[-1]

    def restart(self, step: int) -> None:
        """Begin a new attempt after a step: the curve up to there stays, what comes after it is taken anew."""
        self.pid, self.phase, self.failure = None, None, None
        self.step, self.loss, self.last_time = step, None, 0.0
        self.losses.truncate(step + 1)
        self.pace = Pace()

    def behind(self, leader: RankState, now: float) -> int:
        """Steps behind the leader.

        Ranks report in batches at different moments, so the comparison is made at the moment of this rank's last
        report; a rank that is silent is compared with the leader's last step.
        """
        if leader is self or not self.step:
            return max(0, leader.step - self.step)
        if now - self.last_time > SILENT_AFTER_S:
            return max(0, leader.step - self.step)
        return max(0, int(leader.pace.step_at(self.last_time)) - self.step)
