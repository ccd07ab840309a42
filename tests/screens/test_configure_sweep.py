"""Several values in fields of the form: a sweep."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Button, Input, Static

from tests.kit.configure_app import Start, field, screen, type_into, until, words
from tuiapp.screens.runs import RunsScreen
from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import find_waiting
from tuiapp.trainers.experiments.study import Study, StudyDir
from tuiapp.trainers.experiments.sweep import begin_grid
from tuiapp.widgets.config_form import ConfigForm

pytestmark = pytest.mark.nightly


def held(study: Study, runs_dir: Path, machine: Machine | None) -> tuple[StudyDir, list[RunDir]]:
    """Queue a sweep that nobody starts."""
    return begin_grid(study, runs_dir, machine, held=True)


async def test_the_form_says_how_many_runs_and_queues_them(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuiapp.trainers.experiments.sweep.begin_grid", held)
    async with start(preset="mlp", runs_dir=tmp_path / "runs") as pilot:
        await type_into(pilot, "learning_rate", "0.1, 0.03, 0.01")
        await type_into(pilot, "seed", "0..1")
        await until(pilot, lambda: "6 runs" in words(pilot, "#facts"))
        assert "learning_rate 0.1, 0.03, 0.01 × seed 0, 1" in words(pilot, "#facts")
        assert str(screen(pilot).query_one("#launch", Button).label) == "Sweep of 6 ^r"
        assert field(pilot, "learning_rate").help == "3 values: 0.1, 0.03, 0.01"
        grid = "--grid learning_rate=0.1,0.03,0.01 --grid seed=0..1"
        assert screen(pilot).command == f"tuiapp sweep mlp {grid} --runs-dir {tmp_path}/runs"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "one value" in str([note.message for note in pilot.app._notifications]))
        await pilot.press("ctrl+r")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunsScreen))
        listed = pilot.app.screen
        await until(pilot, lambda: "6 runs" in str(listed.query_one("#heading", Static).content))
        assert listed.query_one("#filter", Input).value == "group:mlp-1"
        assert len(find_waiting(tmp_path / "runs")) == 6


async def test_a_number_of_trials_makes_it_a_search(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[StudyDir] = []
    monkeypatch.setattr("tuiapp.trainers.experiments.sweep.start_search", begun.append)
    async with start(preset="mlp", runs_dir=tmp_path / "runs") as pilot:
        await until(pilot, lambda: screen(pilot).is_mounted)
        assert not field(pilot, "trials").display
        # Without a count it is nothing but a search.
        await type_into(pilot, "learning_rate", "1e-5..1e-1")
        await until(pilot, lambda: "in a search it needs none" in field(pilot, "learning_rate").problem)
        await type_into(pilot, "learning_rate", "log 1e-5..1e-1")
        await until(pilot, lambda: "5 runs" in words(pilot, "#facts"))
        await until(pilot, lambda: field(pilot, "trials").display)
        await until(
            pilot, lambda: "set Trials for a search" in str(screen(pilot).query_one(ConfigForm).border_subtitle)
        )
        assert not field(pilot, "prune").display
        await type_into(pilot, "trials", "0")
        await until(pilot, lambda: "at least 1" in field(pilot, "trials").problem)
        await type_into(pilot, "trials", "40")
        by = "40 trials by Optuna: learning_rate log:1e-5..1e-1"
        await until(pilot, lambda: f"{by} · median pruning" in words(pilot, "#facts"))
        assert field(pilot, "learning_rate").help == "drawn from: log:1e-5..1e-1"
        assert str(screen(pilot).query_one("#launch", Button).label) == "Search of 40 ^r"
        await type_into(pilot, "prune", "hyperband")
        await until(pilot, lambda: "hyperband pruning" in words(pilot, "#facts"))
        search = "--search learning_rate=log:1e-5..1e-1 --trials 40 --prune hyperband"
        assert screen(pilot).command == f"tuiapp sweep mlp {search} --runs-dir {tmp_path}/runs"
        await pilot.press("ctrl+r")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunsScreen))
        study = begun[0].read()
        assert study.search is not None
        assert (study.search.trials, study.search.pruner, study.metric) == (40, "hyperband", "test/accuracy")
        assert study.axes == {"learning_rate": "log:1e-5..1e-1"}


async def test_a_search_of_a_script_needs_what_its_trials_are_best_by(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[StudyDir] = []
    monkeypatch.setattr("tuiapp.trainers.experiments.sweep.start_search", begun.append)
    script = tmp_path / "train.py"
    script.write_text("print(1)\n")
    async with start(runs_dir=tmp_path / "runs") as pilot:
        await type_into(pilot, "backend", "script")
        await type_into(pilot, "script", str(script))
        await type_into(pilot, "values", "lr=0.1..0.3 k=3")
        await type_into(pilot, "trials", "4")
        await until(pilot, lambda: "4 trials by Optuna: lr 0.1..0.3" in words(pilot, "#facts"))
        await pilot.press("ctrl+r")
        await until(pilot, lambda: "name the metric that the script reports" in field(pilot, "metric").problem)
        await type_into(pilot, "metric", "reward")
        await until(
            pilot, lambda: (screen(pilot).command or "").endswith(f"--metric reward --runs-dir {tmp_path}/runs")
        )
        await pilot.press("ctrl+r")
        await until(pilot, lambda: bool(begun))
        assert (begun[0].read().metric, begun[0].read().rises) == ("reward", True)
