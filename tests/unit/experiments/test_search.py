"""A search: Optuna's trials and the runs that are made of them, with runs that are acted here."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from tests.kit.leftovers import mark as mark
from tests.kit.recorded import record
from tests.kit.waiting import wait_until
from tuiapp.trainers.config.run_config import RunConfig, to_toml_values
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import AnyEvent, Figures, Metrics, RunEnded, RunStarted, Summary
from tuiapp.trainers.contract.journal import JournalWriter
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import About, read_about, write_about
from tuiapp.trainers.experiments import search
from tuiapp.trainers.experiments.search import Searcher, TrialRun
from tuiapp.trainers.experiments.study import Ended, Search, Study, StudyDir, make_study
from tuiapp.trainers.experiments.sweep import keep_searches, resume_search
from tuiapp.view.study import draw_slice, read_study_state

BASE = RunConfig(platform="cpu", devices=1, model="mlp", epochs=10)
STEPS, EVALUATIONS = 100, 10


class Acted:
    """A run that takes an evaluation's time for each look at it; the nearer its rate is to 0.01, the better it gets."""

    def __init__(self, run: RunDir, config: RunConfig, *, fails: bool) -> None:
        self.run, self._fails = run, fails
        self._lock: int | None = run.take_lock()
        self._best = 1 - abs(math.log10(config.learning_rate) + 2) / 5
        self._done = 0

    @property
    def is_over(self) -> bool:
        return self._lock is None

    def go_on(self) -> None:
        commands = sidecars.take_commands(self.run.commands)
        if commands or self._fails or self._done == EVALUATIONS:
            self._end(commands)
            return
        self._done += 1
        step = STEPS * self._done // EVALUATIONS
        accuracy = self._best * (1 - 0.5**self._done)
        self._write(Metrics(rank=0, first_step=step, values={"test/accuracy": [accuracy], "test/loss": [1.0]}))

    def _end(self, commands: Sequence[str]) -> None:
        step = STEPS * self._done // EVALUATIONS
        best = self._best * (1 - 0.5**self._done)
        figures = {"test/accuracy": Figures(best, 0.0, best)}
        summary = Summary(steps=step, test_accuracy=best, best_accuracy=best, metrics=figures)
        status, reason = ("failed", "no luck") if self._fails else ("completed", "100 of 100 steps")
        if commands:
            status, reason = "stopped", f"{'pruned' if 'pruned' in commands else 'on request'}, after step {step}"
        self._write(RunEnded(status=status, reason=reason, summary=summary))  # type: ignore[arg-type]
        assert self._lock is not None
        os.close(self._lock)
        self._lock = None

    def _write(self, event: AnyEvent) -> None:
        writer = JournalWriter(self.run.journal)
        writer.append([event])
        writer.close()


class Stage:
    """Stands in for the queue; between two looks of a search its runs go on, until one too many has been made."""

    def __init__(self, killed_after: int = 1000, *, fail: bool = False) -> None:
        self.runs: list[Acted] = []
        self.most = 0
        self._left, self._fail = killed_after, fail

    def add(self, config: RunConfig, runs_dir: Path, about: About, **_: Any) -> RunDir:
        run_id = f"20261120T101500-torch-ddp-mlp-{len(os.listdir(runs_dir)):04x}"
        started = RunStarted(run_id=run_id, host="h", pid=1, config={}, world_size=1, total_steps=STEPS)
        run = record(runs_dir, run_id, [started], config)
        write_about(run, about)
        self.runs.append(Acted(run, config, fails=self._fail))
        if self._left == 0:
            raise KilledError
        self._left -= 1
        return run

    def pass_time(self, _: float) -> None:
        going_on = [one for one in self.runs if not one.is_over]
        self.most = max(self.most, len(going_on))
        for one in going_on:
            one.go_on()


class KilledError(BaseException):
    pass


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(search, "LOOK_S", 0.0)
    monkeypatch.setattr(search, "start_keeper", lambda _: None)
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yield
    optuna.logging.set_verbosity(before)


@pytest.fixture
def place(tmp_path: Path) -> StudyDir:
    asked = Search(trials=12, parallel=2, sampler="random", pruner="median")
    study = Study(
        name="lr",
        axes={"learning_rate": "log:1e-5..1e-1", "optimizer": "adam,adamw"},
        config=to_toml_values(BASE),
        search=asked,
        metric="test/accuracy",
        rises=True,
    )
    return make_study(tmp_path / "runs", study)


def go(place: StudyDir, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Ended:
    monkeypatch.setattr(search, "enqueue", stage.add)
    monkeypatch.setattr("tuiapp.trainers.experiments.search.time.sleep", stage.pass_time)
    return Searcher(place).search()


def trials(place: StudyDir) -> list[optuna.trial.FrozenTrial]:
    storage = JournalStorage(JournalFileBackend(str(place.journal)))
    return optuna.load_study(study_name=place.name, storage=storage).trials


def test_hopeless_trials_are_pruned_and_the_best_is_found(place: StudyDir, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    assert go(place, stage, monkeypatch) == Ended(reason="12 trials are made")
    assert (len(stage.runs), stage.most) == (12, 2)
    state = read_study_state(place)
    states = [trial.state for trial in state.trials]
    assert set(states) == {"completed", "pruned"}
    # What is pruned was stopped long before its end.
    assert all(trial.info.summary.steps < STEPS for trial in state.trials if trial.state == "pruned")
    assert state.best is state.trials[0]
    rates = [trial.values["learning_rate"] for trial in state.trials]
    assert rates[0] == min(rates, key=lambda rate: abs(math.log10(float(str(rate))) + 2))
    told = {str(one.user_attrs["run"]): one.state.name for one in trials(place)}
    expected = {"completed": "COMPLETE", "pruned": "PRUNED"}
    assert told == {trial.info.directory.run_id: expected[trial.state] for trial in state.trials}
    # As Optuna's own dashboard shows them: by per cent of the steps.
    assert all(0 < step <= 100 for one in trials(place) for step in one.intermediate_values)
    drawn = draw_slice(state, "learning_rate", 60)
    assert drawn[0] == "test/accuracy by learning_rate (log)"
    assert "".join(drawn).count("★") == 1
    assert draw_slice(state, "optimizer", 60)[-1].split() == ["adam", "adamw"]


@pytest.mark.parametrize("after", [1, 5])
def test_a_search_that_is_killed_goes_on_where_it_was(
    place: StudyDir, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    stage = Stage(killed_after=after)
    # Its last run is queued, and which trial's it is not noted yet.
    with pytest.raises(KilledError):
        go(place, stage, monkeypatch)
    again = Stage()
    again.runs = [one for one in stage.runs if not one.is_over]
    assert go(place, again, monkeypatch) == Ended(reason="12 trials are made")
    runs = place.runs()
    assert len(runs) == 12
    assert sorted(str(one.user_attrs["run"]) for one in trials(place)) == [run.run_id for run in runs]
    assert all(one.state.is_finished() for one in trials(place))
    numbers = sorted(int(read_about(run)[0].name.partition(":")[0]) for run in runs)
    assert numbers == list(range(12))


def test_a_search_whose_environment_is_broken_is_not_begun_at_each_look(place: StudyDir) -> None:
    place.write(msgspec.structs.replace(place.read(), environment={"PYTHONHOME": "/nowhere"}))
    for _ in range(5):
        assert keep_searches(place.runs_dir), "it has not ended"
    wait_until(lambda: "encodings" in place.log.read_text())
    assert keep_searches(place.runs_dir)
    started = [line for line in place.log.read_text().splitlines() if line.startswith("Python path configuration")]
    assert len(started) == 1


def test_more_trials(place: StudyDir, monkeypatch: pytest.MonkeyPatch) -> None:
    go(place, Stage(), monkeypatch)
    monkeypatch.setattr("tuiapp.trainers.experiments.sweep.start_search", lambda _: None)
    assert not place.ended.exists()
    resume_search(place, 3)
    go(place, Stage(), monkeypatch)
    assert len(trials(place)) == 15
    # The same generator goes on: none of them is drawn twice.
    assert len({tuple(one.params.values()) for one in trials(place)}) == 15


def test_a_study_that_is_stopped(place: StudyDir, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    pass_time = stage.pass_time

    def stop(seconds: float) -> None:
        if len(stage.runs) == 4:
            place.change(stopped=True)
        pass_time(seconds)

    monkeypatch.setattr(stage, "pass_time", stop)
    assert go(place, stage, monkeypatch) == Ended(reason="stopped")
    assert len(stage.runs) == 4
    assert all(one.is_over for one in stage.runs)


def test_trials_that_fail_all_alike_end_it(place: StudyDir, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(fail=True)
    assert go(place, stage, monkeypatch).failed
    assert len(stage.runs) <= search.MOST_FAILED + 1


@pytest.mark.parametrize(
    ("metric", "says"),
    [
        ("test/acuracy", "no trial reports test/acuracy; they report test/accuracy"),
        ("nothing like it", "no trial reports nothing like it; they report "),
        ("test/loss", "3 trials are made"),
    ],
)
def test_a_metric_that_no_run_reports_ends_it_after_the_first(
    place: StudyDir, metric: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Search(trials=3, parallel=1, sampler="random", pruner="none")
    place.change(metric=metric, search=asked)
    stage = Stage()
    ended = go(place, stage, monkeypatch)
    assert ended.reason.startswith(says)
    assert (ended.failed, len(stage.runs)) == ((True, 1) if "no trial" in says else (False, 3))


def test_a_misnamed_metric_stops_the_runs_beside_the_first(place: StudyDir, monkeypatch: pytest.MonkeyPatch) -> None:
    place.change(metric="test/acuracy")
    stage = Stage()
    assert go(place, stage, monkeypatch).reason.startswith("no trial reports test/acuracy")
    assert len(stage.runs) == 2
    assert all(one.is_over for one in stage.runs)


def test_a_storage_is_a_database_that_opens(tmp_path: Path) -> None:
    assert search.storage_problem(f"sqlite:///{tmp_path}/trials.db") == ""
    assert search.storage_problem("nonsense").startswith("Could not parse SQLAlchemy URL")
    assert "unable to open database file" in search.storage_problem("sqlite:////nowhere/at/all.db")


def test_a_point_for_each_per_cent_of_a_runs_steps(tmp_path: Path) -> None:
    started = RunStarted(run_id="r", host="h", pid=1, config={}, world_size=1, total_steps=200)
    losses = Metrics(rank=0, first_step=1, values={"loss": [4.0, 2.0, None, 1.0, 3.0]})
    run = record(tmp_path, "20261120T101500-torch-ddp-mlp-0000", [started, losses])
    watched = TrialRun(None, run, "loss", 0)  # type: ignore[arg-type]
    # Steps 1 and 2 are the first per cent, 3 and 4 the second: what comes later counts for the next point.
    assert watched.reports() == [(1, 4.0), (2, 1.5), (3, 3.0)]
    assert watched.reports() == []
    assert TrialRun(None, run, "loss", 2).reports() == [(3, 2.5)]  # type: ignore[arg-type]
