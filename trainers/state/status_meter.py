"""What a run has come to, from its events: as its supervisor writes them, or as a reader finds them in the journal."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.contract.evaluations import NEVER, Evaluated, Evaluations, extremes
from tuiapp.trainers.contract.events import (
    BLOCKING,
    MAX_FIGURES,
    PRUNED,
    Alert,
    AnyEvent,
    Blemish,
    Event,
    Facts,
    Figures,
    Metrics,
    Node,
    Phase,
    Queued,
    RankFailed,
    RunEnded,
    RunStarted,
    StopRequested,
    Summary,
)
from tuiapp.trainers.contract.metrics import (
    DATA_WAIT,
    EXAMPLES,
    HELD_OUT,
    MAX_RANKS,
    STEP_TIME,
    SYNC_WAIT,
    group_of,
    is_loss,
    last_examples,
    loss_of,
    mean,
    total,
)
from tuiapp.trainers.contract.status import SCHEMA, End, Status
from tuiapp.trainers.state.blemishes import BlemishMeter
from tuiapp.trainers.state.curves import Curves
from tuiapp.trainers.state.history import StepZero
from tuiapp.trainers.state.known_metrics import KNOWN
from tuiapp.trainers.state.timeline import Earlier, timed, warm_after
from tuiapp.trainers.state.transient import looks_transient

NOTHING = Status(schema=SCHEMA)

MARRED_S = 5.0
"""How old the blemishes of a live run's status may be: finding them takes a look at the whole curve of its loss."""

NOT_RESULTS = (DATA_WAIT, EXAMPLES, STEP_TIME, SYNC_WAIT)


class StatusMeter:
    """Folds a run's events, from those on that `before` has not seen.

    `curves` returns the run's, as far as its journal was read from the beginning; if it returns None, all that `before`
    has come to counts.
    """

    def __init__(
        self,
        before: Status = NOTHING,
        facts: Facts | None = None,
        curves: Callable[[], Curves | None] = lambda: None,
    ) -> None:
        self.facts, self._curves = facts, curves
        self._has_begun = False
        """Whether an attempt has that `before` has not seen."""
        self._first_time, self._time, self._started = before.first_time, before.time, before.started
        self._begun, self._queued, self._end = before.begun, before.queued, before.end
        self._stop_asked, self._stalled, self._pace = before.stop_asked, before.stalled, before.rate
        self._since = None if before.end or before.queued or not before.begun else before.time
        """From when on the attempt's time counts, in seconds since the epoch; None while none is under way."""
        self._start(before.summary, before.summary.steps)
        # An attempt that goes on has come to what it had until it reports anew.
        self._known = before.summary
        self._blemishes = BlemishMeter(before.summary.blemishes, before.summary.steps, begun=True)

    def _start(self, before: Summary, resumed_from: int | None) -> None:
        """Starts to sum up what comes after a step, None where only its first report of training tells which."""
        begun = self._begun
        config = begun.config if begun else {}
        backend, batch = BACKENDS.get(str(config.get("backend"))), config.get("global_batch_size")
        self._is_script = backend is not None and not backend.builtin
        self._batch = batch if isinstance(batch, int) and not self._is_script else 0
        self._steps_per_epoch = begun.steps_per_epoch if begun else 0
        self._before, self._untouched, self._known = before, True, Summary(epochs=None)
        self._figures = dict(before.metrics)
        self._rank_of: dict[str, int] = {}
        """Metric → the first rank that reported it."""
        self._zero = StepZero()
        self._furthest: dict[str, int] = {}
        """Metric → its furthest step."""
        self._step = dict.fromkeys(range(min(begun.world_size, MAX_RANKS) if begun else 0), resumed_from or 0)
        self._losses: dict[str, dict[int, float | None]] = {}
        """Metric that may be the loss → rank → last value."""
        self._sizes: dict[int, float] = {}
        """Rank → examples of its last step."""
        self._paces: dict[int, float] = {}
        """Rank → examples per second by its last report."""
        self._evaluations = Evaluations()
        self._timed_s = self._timed_steps = 0.0
        self._warm_after = warm_after(resumed_from or 0, begun.total_steps if begun else 0, self._steps_per_epoch)
        self._blemishes = BlemishMeter(before.blemishes, resumed_from)
        self._marred: tuple[float, list[Blemish]] | None = None
        """When the blemishes were found last, in seconds since the epoch, and which; None where there may be others."""
        self._failures: list[RankFailed] = []
        self._lost_nodes: set[int] = set()

    @property
    def step(self) -> int:
        """The last step that every rank has reported; of a script, in which one may report for all, that any has."""
        return (max if self._is_script else min)(self._step.values(), default=0)

    @property
    def _steps(self) -> int:
        """How many steps it has taken: an earlier attempt may have begun with step 0."""
        curves = self._curves()
        return self.step + bool(self._zero if curves is None else curves.zero)

    def last_step(self, rank: int) -> int:
        return self._step.get(rank, 0)

    def add(self, event: AnyEvent | Event) -> None:
        if isinstance(event, Metrics):  # first, because it is most of a journal
            self._add_metrics(event)
        elif isinstance(event, RunStarted):
            self._begin(event)
        elif isinstance(event, Queued):
            self._wait(event)
        elif isinstance(event, RunEnded):
            self._finish(event)
        elif isinstance(event, Facts):
            self.facts = self.facts.followed_by(event) if self.facts else event
        elif isinstance(event, StopRequested):
            self._stop_asked |= event.by in ("command", PRUNED)
        elif isinstance(event, RankFailed):
            self._failures.append(event)
        elif isinstance(event, Node) and event.state == "lost":
            self._lost_nodes.add(event.node)
        elif isinstance(event, Phase):
            self._stalled = ""
        elif isinstance(event, Alert):
            self._blemishes.add(event)
            self._marred = None
            if event.kind in BLOCKING:
                self._stalled = "" if event.ended else event.text
        if self._first_time is None and not isinstance(event, Queued):
            self._first_time = event.time
        self._time = max(self._time, event.time)

    def _begin(self, event: RunStarted) -> None:
        before = self.summary()
        config = {key: event.config[key] for key in ("backend", "global_batch_size") if key in event.config}
        self._begun, self._since = replace(event, config=config), event.time
        self._started = event.time if self._started is None else self._started
        self._queued, self._end, self._stop_asked, self._stalled = None, None, False, ""
        self._has_begun = True
        self._start(before, event.resumed_from)

    def _wait(self, event: Queued) -> None:
        if self._queued is None:
            # The time in a queue is none of the run's.
            self._before, self._untouched, self._since = self.summary(), True, None
        self._queued, self._end = event, None

    def _finish(self, event: RunEnded) -> None:
        self._before, self._untouched, self._since = event.summary, True, None
        failed = self._failures
        causes = [one for one in failed if one.rank == event.failed_rank] or failed
        self._end = End(
            status=event.status,
            reason=event.reason,
            time=event.time,
            transient=any(map(looks_transient, causes)),
            node_lost=any(one.lost and one.node in self._lost_nodes for one in causes),
        )
        self._queued, self._stalled = None, ""

    def _add_metrics(self, event: Metrics) -> None:
        self._untouched, self._stalled = False, ""
        if self._since is None and self._end is None:
            # The attempt's first event is damaged.
            self._since = event.time
        self._blemishes.add(event)
        self._zero.add(event)
        if event.is_training or self._is_script:
            self._step[event.rank] = max(self._step.get(event.rank, 0), event.last_step)
        self._evaluations.add(event)
        self._add_figures(event)
        values = event.values
        for name, column in values.items():
            if is_loss(name):
                self._sizes[event.rank] = last_examples(values, event.counts)
                self._losses.setdefault(name, {})[event.rank] = column[-1]
        if STEP_TIME in values:
            if event.rank == 0:
                # Ranks move in lockstep: rank 0's clock is the run's.
                steps, seconds = timed(event, self._warm_after)
                self._timed_steps += steps
                self._timed_s += seconds
            if EXAMPLES in values and (seconds := total(values[STEP_TIME], event.counts)) > 0:
                self._paces[event.rank] = total(values[EXAMPLES]) / seconds

    def _add_figures(self, event: Metrics) -> None:
        """Adds a script's values to what its metrics have come to.

        Of a built-in trainer those of an evaluation beside loss and accuracy: `test/perplexity`, and a user's own.
        """
        figures = self._figures
        for name, column in event.values.items():
            if (
                name in NOT_RESULTS
                or not (self._is_script or is_further(name))
                or self._rank_of.setdefault(name, event.rank) != event.rank
            ):
                continue
            if name in figures or len(figures) < MAX_FIGURES:
                late = event.last_step < self._furthest.get(name, 0)
                figures[name] = figures.get(name, Figures()).followed_by(column, late=late)
                self._furthest[name] = max(event.last_step, self._furthest.get(name, 0))

    def _epochs(self, *, completed: bool) -> float | None:
        if per_epoch := self._steps_per_epoch:
            return round(self.step / per_epoch, 3)
        curves = self._curves()
        reported = curves.reported_epochs if curves is not None else None
        return reported.over(completed=completed) if reported is not None else None

    def summary(self, seconds: float | None = None, *, completed: bool = False, blemishes_s: float = 0.0) -> Summary:
        """The run's figures now; `seconds` are the attempt's so far, by the clock of the events if they are None.

        Blemishes may be those of `blemishes_s` seconds ago.
        """
        if self._since is None:
            return self._before
        curves = self._curves() if self._has_begun else None
        earlier = curves.earlier if curves is not None else None
        seconds = max(0.0, self._time - self._since) if seconds is None else seconds
        seconds += self._before.seconds if earlier is None else earlier.seconds
        epochs = self._epochs(completed=completed)
        if self._marred is None or self._time - self._marred[0] >= blemishes_s:
            self._marred = self._time, self._blemishes.blemishes(self._steps, self._time)
        blemishes = self._marred[1]
        if self._untouched:
            # Where a script resumes is not known before its first step.
            steps = {} if self._is_script else {"steps": self.step, "epochs": epochs}
            return replace(self._before, **steps, seconds=seconds, blemishes=blemishes)
        known, first = self._known, earlier or Earlier()
        took = self._timed_s + first.timed_seconds
        rate = (self._timed_steps + first.timed_steps) * self._batch / took if took else None
        losses = self._losses.get(loss_of(self._losses), {})
        last = self._evaluations.last
        before = Evaluated(self._before.best_loss, self._before.best_accuracy) if earlier is None else earlier.evaluated
        best = extremes([self._evaluations.best, before])
        return Summary(
            steps=self._steps,
            epochs=known.epochs if epochs is None else epochs,
            examples_per_second=rate or known.examples_per_second,
            loss=mean(losses.values(), [self._sizes[rank] for rank in losses]) if losses else known.loss,
            test_loss=known.test_loss if last == NEVER else last.loss,
            test_accuracy=known.test_accuracy if last == NEVER else last.accuracy,
            evaluated_on=self._evaluations.group or known.evaluated_on,
            best_loss=best.loss,
            best_accuracy=best.accuracy,
            seconds=seconds,
            metrics=dict(self._figures),
            blemishes=blemishes,
        )

    def status(self, size: int, seconds: float | None = None) -> Status:
        """What the journal's first `size` bytes come to; `seconds` as for `summary`."""
        return Status(
            schema=SCHEMA,
            size=size,
            first_time=self._first_time,
            time=self._time,
            started=self._started,
            begun=self._begun,
            queued=self._queued,
            end=self._end,
            stop_asked=self._stop_asked,
            stalled=self._stalled,
            rate=sum(self._paces.values()) if self._paces else self._pace,
            summary=self.summary(seconds, blemishes_s=MARRED_S),
            name=self.facts.name if self.facts else "",
        )


def is_further(name: str) -> bool:
    """Whether a metric is a figure of an evaluation beside those that every built-in trainer reports."""
    return group_of(name) in HELD_OUT and name not in KNOWN
