"""A study's search: `python -m tuiapp.trainers.experiments.search RUNS_DIR NAME`, one process for each study.

It asks Optuna for trials, queues a run of each, reads the objective out of their journals while they train, stops the
hopeless ones, and tells the results. All that it knows is in Optuna's journal and in the runs' directories: another one
goes on where it was killed. Beside it `importance` alone imports Optuna.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import sys
import time
import traceback
import warnings
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from pathlib import Path
from statistics import fmean
from typing import Any

import optuna
from msgspec.structs import replace
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.trial import FrozenTrial, Trial, TrialState

from tuiapp.trainers.config.files import is_full, open_regular, write_atomically
from tuiapp.trainers.config.options import ConfigError, Value
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import Facts, Metrics, RunStarted
from tuiapp.trainers.contract.journal import JournalReader
from tuiapp.trainers.contract.lines import encode_json
from tuiapp.trainers.contract.lock import is_held
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import About, AboutError, read_about, read_waiting
from tuiapp.trainers.experiments import daemon
from tuiapp.trainers.experiments.queue import NotStartedError, QueueFiles, enqueue, is_transient, start_keeper
from tuiapp.trainers.experiments.space import Axis, run_name, short_value, with_values
from tuiapp.trainers.experiments.study import Ended, Search, Study, StudyDir, StudyError
from tuiapp.trainers.experiments.sweep import end_run
from tuiapp.trainers.launch import LaunchError
from tuiapp.trainers.state.objective import Objective, result_values
from tuiapp.trainers.state.summary import summarise

TICK_S = 0.25
"""Seconds between two looks at the journals."""
LOOK_S = 1.0
"""Seconds between two looks at whether a run is over."""
KEEPER_S = 10.0
"""Seconds between two looks at whether what waits has a keeper."""
POINTS = 100
"""Reports of a trial at most: they are made at per cents of its steps, so that trials of other lengths compare."""
MOST_FAILED = 5
"""Trials that fail one after another end the search: what they have in common is wrong."""
MOST_NAMED = 5
"""Metrics that are named where the objective is none of them."""
RUN = "run"
"""Attribute of a trial: its run's id."""
WHY = "why"
"""Attribute of a trial: why it failed without a run."""


class TrialRun:
    """A trial's run, and what its journal says of the objective."""

    def __init__(self, trial: Trial, run: RunDir, metric: str, reported: int) -> None:
        self.trial, self.run = trial, run
        self._metric, self._reported = metric, reported
        self._reader = JournalReader(run.journal)
        self._total = 0
        self._collected: list[float] = []
        self.asked_to_stop = False

    def reports(self) -> list[tuple[int, float]]:
        """Returns what is new: per cent of the run's steps, or the step if their number is not known, and a mean."""
        reports = list[tuple[int, float]]()
        while events := self._reader.read():
            for event in events:
                if isinstance(event, RunStarted | Facts):
                    self._total = event.total_steps or self._total
                elif isinstance(event, Metrics) and (values := event.values.get(self._metric)):
                    for (step, _), value in zip(event.places(), values, strict=True):
                        if value is not None and math.isfinite(value):
                            self._collected.append(value)
                            point = min(POINTS, math.ceil(POINTS * step / self._total)) if self._total else step
                            if point > self._reported:
                                reports.append((point, fmean(self._collected)))
                                self._reported = point
                                self._collected.clear()
        return reports


class Searcher:
    def __init__(self, study_dir: StudyDir) -> None:
        self._study_dir = study_dir
        self.study = study_dir.read()
        self._axes = self.study.read_axes()
        self._optuna = open_study(study_dir, self.study)
        self._space = {axis.key: distribution(axis) for axis in self._axes}
        self._objective = Objective(self.study.metric, self.study.rises)
        self._live: dict[int, TrialRun] = {}
        self._failed_in_a_row = 0
        self._misnamed = ""
        """What the runs report, if none of them reports the objective."""
        self._looked = self._kept = -math.inf

    @property
    def _search(self) -> Search:
        assert self.study.search is not None
        return self.study.search

    def search(self) -> Ended:
        """Makes trials until there are as many as were asked for; returns how that ended."""
        self._go_on()
        while True:
            with contextlib.suppress(StudyError):
                self.study = self._study_dir.read()
            self._report()
            now = time.monotonic()
            if now - self._looked >= LOOK_S:
                self._looked = now
                self._settle()
            if now - self._kept >= KEEPER_S and self._live:
                self._kept = now
                start_keeper(self._study_dir.runs_dir)
            ended = self._ended()
            if ended and not self._live:
                return ended
            if self._misnamed or self.study.stopped:
                for trial_run in self._live.values():
                    if not trial_run.asked_to_stop:
                        trial_run.asked_to_stop = True
                        end_run(self._study_dir.runs_dir, trial_run.run, f"study {self.study.name} was stopped")
            if not ended and len(self._live) < self._search.parallel:
                trial = self._optuna.ask(self._space)
                self._start(trial, trial.params)
            else:
                time.sleep(TICK_S)

    def _ended(self) -> Ended | None:
        """Says why no further trial is made; None if one is."""
        if self._misnamed:
            return Ended(reason=self._misnamed, failed=True)
        if self._failed_in_a_row >= MOST_FAILED:
            return Ended(reason=f"the last {MOST_FAILED} trials failed: see its runs", failed=True)
        if self.study.stopped:
            return Ended(reason="stopped")
        made = len(self._trials())
        return Ended(reason=f"{made} trials are made") if made >= self._search.trials else None

    def _trials(self) -> list[FrozenTrial]:
        return self._optuna.get_trials(deepcopy=False)

    def _go_on(self) -> None:
        """Takes up the trials of a search that was killed: those whose runs are there, by run or by name."""
        claimed = {str(trial.user_attrs.get(RUN)) for trial in self._trials()}
        for frozen in self._trials():
            if frozen.state != TrialState.RUNNING:
                continue
            run_id = str(frozen.user_attrs.get(RUN, "")) or self._find_run(frozen.number, claimed)
            trial = Trial(self._optuna, frozen._trial_id)
            if run_id:
                trial.set_user_attr(RUN, run_id)
                self._watch(trial, RunDir(self._study_dir.runs_dir / run_id), frozen)
            elif frozen.params.keys() == self._space.keys():
                self._start(trial, frozen.params)
            else:
                self._optuna.tell(frozen.number, state=TrialState.FAIL)

    def _find_run(self, number: int, claimed: set[str]) -> str:
        """Returns the run that was queued for a trial just before the search was killed; "" for none."""
        start = f"{number}: "
        runs = [run for run in self._study_dir.runs() if run.run_id not in claimed]
        return next((run.run_id for run in runs if read_about(run)[0].name.startswith(start)), "")

    def _watch(self, trial: Trial, run: RunDir, frozen: FrozenTrial | None = None) -> None:
        reported = max(frozen.intermediate_values, default=0) if frozen else 0
        self._live[trial.number] = TrialRun(trial, run, self._objective.name, reported)

    def _start(self, trial: Trial, params: Mapping[str, Value]) -> None:
        """Queues a trial's run."""
        study = self.study
        try:
            config = with_values(study.base, params)
            values = {key: value for key, value in params.items() if not isinstance(value, tuple)}
            name = run_name(params, short_value, f"{trial.number}: ")
            about = About(name=name, group=study.name, tags=study.tags, values=values)
            run = enqueue(config, self._study_dir.runs_dir, about, priority=study.priority, retry=study.retry)
        except NotStartedError as error:
            # It is tried again while the search waits for the run.
            daemon.say(str(error))
            (run,) = error.runs
        except (ConfigError, LaunchError, AboutError) as error:
            if is_full(error):
                raise
            trial.set_user_attr(WHY, str(error))
            self._tell(trial.number, None, TrialState.FAIL)
            daemon.say(f"trial {trial.number} {params}: {error}")
            return
        trial.set_user_attr(RUN, run.run_id)
        self._watch(trial, run)

    def _report(self) -> None:
        """Reports what runs have come to, and stops those that are hopeless."""
        for trial_run in self._live.values():
            for point, value in trial_run.reports():
                trial_run.trial.report(value, point)
                if not trial_run.asked_to_stop and trial_run.trial.should_prune():
                    daemon.say(f"trial {trial_run.trial.number} is pruned at {point}: {value:g}")
                    with contextlib.suppress(OSError):
                        sidecars.send_command(trial_run.run.commands, "pruned")
                        trial_run.asked_to_stop = True

    def _settle(self) -> None:
        """Tells the results of the runs that are over."""
        for number, trial_run in list(self._live.items()):
            # In this order: its keeper may put it back meanwhile.
            if self._is_tried_again(trial_run.run) or trial_run.run.is_live():
                continue
            self._report()
            info = summarise(trial_run.run)
            value = self._objective.value(info) if not trial_run.run.is_gone() else None
            state = TrialState.FAIL
            if info.status == "completed" and value is not None:
                state = TrialState.COMPLETE
            elif info.status == "stopped" and self._trials()[number].intermediate_values:
                state = TrialState.PRUNED
            del self._live[number]
            reported = any(trial.value is not None or trial.intermediate_values for trial in self._trials())
            if info.status == "completed" and value is None and not reported:
                self._misnamed = _unreported(self._objective.name, result_values(info))
            self._tell(number, value if state == TrialState.COMPLETE else None, state)

    def _is_tried_again(self, run: RunDir) -> bool:
        kept = read_waiting(run.kept)
        keeper = bool(is_held(QueueFiles(self._study_dir.runs_dir).lock))
        return keeper and kept is not None and kept.retry > 0 and is_transient(run)

    def _tell(self, number: int, value: float | None, state: TrialState) -> None:
        self._failed_in_a_row = self._failed_in_a_row + 1 if state == TrialState.FAIL else 0
        self._optuna.tell(number, value, state=state)


def _unreported(name: str, reported: Iterable[str]) -> str:
    """Says that the runs do not report the objective, and what they do, the nearest first; "" if they report it."""
    names = sorted(reported, key=lambda other: -SequenceMatcher(None, name, other).ratio())
    if name in names:
        return ""
    left_out = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return f"no trial reports {name}; they report {', '.join(names[:MOST_NAMED]) or 'no metric'}{left_out}"


def distribution(axis: Axis) -> BaseDistribution:
    """Returns what Optuna draws a key's values from."""
    if axis.values:
        return CategoricalDistribution(axis.values)  # type: ignore[arg-type]
    if axis.whole:
        return IntDistribution(int(axis.low), int(axis.high), log=axis.log)
    return FloatDistribution(axis.low, axis.high, log=axis.log)


def open_study(study_dir: StudyDir, study: Study) -> optuna.Study:
    """Opens a study's trials, in its own journal or in a database."""
    search = study.search
    assert search is not None
    storage: Any = search.storage or _own_storage(study_dir.journal)
    opened = optuna.create_study(
        storage=storage,
        study_name=study.name,
        direction="maximize" if study.rises else "minimize",
        pruner=_pruner(search),
        load_if_exists=True,
    )
    # Another process than the last: it must not draw the same again.
    seed = study.base.seed + len(opened.get_trials(deepcopy=False))
    if search.sampler == "random":
        opened.sampler = optuna.samplers.RandomSampler(seed=seed)
    else:
        begin = max(3, min(10, search.trials // 3))
        opened.sampler = optuna.samplers.TPESampler(n_startup_trials=begin, constant_liar=True, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        opened.set_metric_names([study.metric])
    return opened


def _own_storage(journal: Path) -> JournalStorage:
    """Opens the study's own file of trials; cuts what a full disk has left of its last line, which none can read."""
    lock = JournalFileSymlinkLock(str(journal))
    fd = open_regular(journal, os.O_RDWR | os.O_CREAT)
    with open(fd, "r+b") as file:
        lock.acquire()
        try:
            text = file.read()
            if not text.endswith(b"\n"):
                file.truncate(text.rfind(b"\n") + 1)
        finally:
            lock.release()
    return JournalStorage(JournalFileBackend(str(journal), lock_obj=lock))


def _pruner(search: Search) -> optuna.pruners.BasePruner:
    if search.pruner == "none":
        return optuna.pruners.NopPruner()
    if search.pruner == "hyperband":
        return optuna.pruners.HyperbandPruner(min_resource=10, max_resource=POINTS)
    # The first ones show what can be expected; the first fifth of a run shows little.
    return optuna.pruners.MedianPruner(n_startup_trials=max(2, min(5, search.trials // 4)), n_warmup_steps=POINTS // 5)


def storage_problem(url: str) -> str:
    """Returns why trials cannot be kept in a database, without its URL, which may hold a password; "" if they can."""
    try:
        optuna.storages.get_storage(url)
    except Exception as error:
        return (str(error) or type(error).__name__).split("\n", 1)[0].replace(url, "it").rstrip(".")
    return ""


def main() -> int:
    """Makes the trials of the study that the arguments name; ends at once if another process does.

    Without arguments it prints what is wrong with the storage whose URL it reads.
    """
    if len(sys.argv) == 1:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        print(storage_problem(sys.stdin.read()))
        return 0
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study_dir = StudyDir(Path(sys.argv[1]), sys.argv[2])
    daemon.serve(study_dir.lock, study_dir.log, lambda: _search(study_dir), study_dir.is_searched)
    return 0


def _search(study_dir: StudyDir) -> None:
    if not study_dir.is_searched():
        return
    try:
        searcher = Searcher(study_dir)
        ended = searcher.search()
    except Exception as error:  # Said where the study is looked at.
        if is_full(error):
            raise
        if "disk is full" in str(error):  # as SQLite says
            raise OSError(errno.ENOSPC, str(error)) from error
        traceback.print_exc()
        ended = Ended(reason=f"the search failed: {type(error).__name__}: {error}; see {study_dir.log}", failed=True)
    with study_dir.alone():
        study = study_dir.read()
        # With more trials, or resumed meanwhile, it goes on.
        if ended.failed or (study.search, study.stopped) == (searcher.study.search, searcher.study.stopped):
            write_atomically(study_dir.ended, encode_json(ended))
            # Its runs have the session's environment as long as they need it.
            study_dir.write(replace(study, environment={}, directory="/"))


if __name__ == "__main__":
    sys.exit(main())
