"""What is known of one rank."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from trainers.contract.events import FrameworkMemory, PhaseName, RankFailed, RankSample, Steps
from tuiapp.state.curves import RankCurves
from tuiapp.state.devices.gpu import HISTORY
from tuiapp.state.digest import MAX_BATCHES, MAX_NUMBER, Batch, RankDigest, batch_of
from tuiapp.state.series import Series

PACE_WINDOW_S = 15.0
"""Training time over which a rank's speed is averaged: long enough to be calm, short enough to follow a change."""

SILENT_AFTER_S = 5.0
"""A rank in training that reports nothing for so long is called silent, unless its steps take long."""

SILENT_STEPS = 4
"""How many of its steps a rank may be silent for."""


class Pace:
    """How fast a rank has been going lately, and where it was when.

    Events are looked at only when somebody asks: of a long journal that is read at once, only the last ones matter.
    """

    def __init__(self) -> None:
        self._fresh: deque[tuple[Steps, int, int] | Batch] = deque(maxlen=MAX_BATCHES)
        self._kept: deque[Batch] = deque(maxlen=MAX_BATCHES)
        self._steps = self._examples = 0
        self._seconds = 0.0

    def add(self, event: Steps, steps: int, last_step: int) -> None:
        """Take in a batch of so many steps up to the last one."""
        self._fresh.append((event, steps, last_step))

    def add_batches(self, batches: Sequence[Batch]) -> None:
        """Take in the last batches of many."""
        self._fresh.extend(batches)

    @property
    def _batches(self) -> deque[Batch]:
        """Those within the window, looked at."""
        while self._fresh:
            fresh = self._fresh.popleft()
            batch = fresh if isinstance(fresh, Batch) else batch_of(*fresh)
            if len(self._kept) == self._kept.maxlen:
                self._forget()
            self._kept.append(batch)
            self._steps += batch.steps
            self._seconds += batch.seconds
            self._examples += batch.examples
            while len(self._kept) > 2 and self._seconds - self._kept[0].seconds > PACE_WINDOW_S:
                self._forget()
        return self._kept

    def _forget(self) -> None:
        old = self._kept.popleft()
        self._steps -= old.steps
        self._seconds -= old.seconds
        self._examples -= old.examples

    @property
    def has_steps(self) -> bool:
        """Whether any were taken in."""
        return bool(self._batches)

    @property
    def seconds_per_step(self) -> float | None:
        """Mean over the window; None before the first step."""
        return self._seconds / self._steps if self._batches and self._steps > 0 and self._seconds > 0 else None

    @property
    def examples_per_second(self) -> float | None:
        """Mean over the window; None before the first step."""
        return self._examples / self._seconds if self._batches and self._seconds > 0 else None

    def step_at(self, time: float) -> float:
        """The step that the rank had reached at that time, as far as its reports tell."""
        later: Batch | None = None
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
    process: RankSample | None = None
    """The latest sample of its process."""
    cpu: deque[float | None] = field(default_factory=lambda: deque(maxlen=HISTORY))
    """What its process took of the CPU; 100 is one core."""
    framework: FrameworkMemory | None = None
    """What its framework holds of its device."""
    failure: RankFailed | None = None
    curves: RankCurves = field(init=False)
    pace: Pace = field(default_factory=Pace)

    @property
    def cpu_percent(self) -> float | None:
        """100 is one core; None where that is not known."""
        return self.process.cpu_percent if self.process else None

    @property
    def rss_bytes(self) -> int | None:
        """Its process's resident memory."""
        return self.process.rss_bytes if self.process else None

    @property
    def threads(self) -> int | None:
        """Of its process."""
        return self.process.threads if self.process else None

    def __post_init__(self) -> None:
        """Make room for its curves."""
        self.curves = RankCurves(self.rank)

    @property
    def losses(self) -> Series:
        """The curve of its loss."""
        return self.curves["loss"]

    def add_steps(self, event: Steps) -> bool:
        """Take in a batch of the rank's steps; whether its numbers are numbers of steps."""
        losses, counts = event.losses, event.counts
        steps = len(losses) if counts is None else sum(counts)
        last_step = event.first_step + steps - 1
        if not losses or not 0 <= event.first_step <= last_step <= MAX_NUMBER:
            return False
        if counts is not None and len(counts) != len(losses):
            return False
        self.curves.add(event)
        self.pace.add(event, steps, last_step)
        if last_step >= self.step:
            self.step = last_step
            self.loss = losses[-1]
            if event.learning_rates:
                self.learning_rate = event.learning_rates[-1]
        return True

    def add_digest(self, digest: RankDigest) -> None:
        """Take in many batches of the rank's steps."""
        self.curves.add_entries(digest.entries)
        self.pace.add_batches(digest.batches)
        if digest.last_step >= self.step:
            self.step, self.loss, self.learning_rate = digest.last_step, digest.loss, digest.learning_rate

    def restart(self, step: int) -> None:
        """Begin a new attempt after a step: the curve up to there stays, what comes after it is taken anew."""
        self.pid, self.phase, self.failure = None, None, None
        self.process = self.framework = None
        self.cpu.clear()
        self.step, self.loss, self.last_time = step, None, 0.0
        self.curves.truncate(step + 1)
        self.pace = Pace()

    @property
    def silent_after_s(self) -> float:
        """From when on its silence means something."""
        return max(SILENT_AFTER_S, SILENT_STEPS * (self.pace.seconds_per_step or 0.0))

    def behind(self, leader: RankState, now: float) -> int:
        """Steps behind the leader.

        Ranks report in batches at different moments, so the comparison is made at the moment of this rank's last
        report; a rank that is silent is compared with the leader's last step.
        """
        if leader is self or not self.step:
            return max(0, leader.step - self.step)
        if now - self.last_time > self.silent_after_s:
            return max(0, leader.step - self.step)
        return max(0, int(leader.pace.step_at(self.last_time)) - self.step)
