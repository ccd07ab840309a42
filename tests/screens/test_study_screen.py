"""The Study screen: trials, the best on top, and what is drawn of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace as replace_fields
from textual.app import App
from textual.widgets import Static

from tests.kit.at_rest import until
from tests.kit.runs_app import ListLister, info
from tuiapp.library.presets import load_config, presets_dir
from tuiapp.screens.preset_dialogs import SavePreset
from tuiapp.screens.requests import OpenRun
from tuiapp.screens.study import StudyScreen
from tuiapp.trainers.config.run_config import RunConfig, to_toml_values
from tuiapp.trainers.contract.sidecars import About
from tuiapp.trainers.experiments.study import Study, make_study
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.widgets.run_table import RunTable


def trial(number: int, rate: float, accuracy: float, *, pruned: bool = False, seed: int = 0) -> RunInfo:
    reason = "pruned, after step 20" if pruned else ""
    found = info(
        number,
        "stopped" if pruned else "completed",
        reason=reason,
        learning_rate=rate,
        weight_decay=rate * number,
        seed=seed,
    )
    summary = msgspec.structs.replace(found.summary, test_accuracy=accuracy, best_accuracy=accuracy)
    return replace(found, summary=summary, about=About(group="rates"))


TRIALS = [trial(1, 0.1, 0.99, pruned=True), trial(2, 0.01, 0.97), trial(3, 0.001, 0.9)]


SEEDS = [
    replace(trial(10 * place + seed, rate, accuracy + 0.01 * seed, seed=seed), about=About(group="rates"))
    for place, (rate, accuracy) in enumerate([(0.1, 0.5), (0.01, 0.97), (0.001, 0.9), (0.0001, 0.8)])
    for seed in range(3)
]


class StudyApp(App[None]):
    def __init__(self, runs_dir: Path, trials: Sequence[RunInfo] = TRIALS) -> None:
        super().__init__()
        self.study = StudyScreen(runs_dir, "rates", ListLister([*trials, info(9)]))
        self.asked: list[OpenRun] = []

    def on_mount(self) -> None:
        self.push_screen(self.study)

    def on_open_run(self, event: OpenRun) -> None:
        self.asked.append(event)


@pytest.mark.parametrize(("size", "slices"), [((80, 24), 2), ((60, 20), 1), ((200, 60), 2)])
async def test_trials_and_slices(tmp_path: Path, size: tuple[int, int], slices: int) -> None:
    axes = {"learning_rate": "log:1e-3..1e-1", "weight_decay": "1..3"}
    make_study(tmp_path, Study(name="rates", axes=axes, config=to_toml_values(RunConfig())))
    app = StudyApp(tmp_path)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: len(app.study.query(".slice")) == slices)
        drawn = [str(one.content) for one in app.study.query(".slice").results(Static)]
        await until(pilot, lambda: "★" in str(app.study.query(".slice").first(Static).content))
        assert "1 pruned, 2 completed" in str(app.study.query_one("#heading", Static).content)
        table = app.study.query_one(RunTable)
        lines = [table.render_line(row).text for row in range(table.size.height)]
        assert [line.split()[:2] for line in lines[1:4]] == [["★", "✓"], ["✓", "completed"], ["■", "pruned"]]
        drawn = [str(one.content) for one in app.study.query(".slice").results(Static)]
        assert drawn[0].startswith("test/accuracy by learning_rate (log)")
        if slices == 1:
            await pilot.press("right")
            await until(pilot, lambda: "by weight_decay" in str(app.study.query(".slice").first(Static).content))
        await pilot.press("down", "enter")
        await until(pilot, lambda: [event.run for event in app.asked] == [TRIALS[2].directory])


async def test_seeds_are_one_row_and_the_best_becomes_a_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    changes = {"weight_decay": 0.0, "devices": 0, "device_ids": ("GPU-1", "GPU-2")}
    trials = [replace(one, config=one.config and replace_fields(one.config, **changes)) for one in SEEDS]
    axes = {"learning_rate": "0.1,0.01,0.001,0.0001", "seed": "0..2"}
    make_study(tmp_path, Study(name="rates", axes=axes, config=to_toml_values(RunConfig())))
    app = StudyApp(tmp_path, trials)
    async with app.run_test(size=(120, 40)) as pilot:
        table = app.study.query_one(RunTable)
        await until(pilot, lambda: len(table.rows) == 4)
        lines = [table.render_line(row).text for row in range(1, 5)]
        assert ["98.0" in lines[0], "91.0" in lines[1], "81.0" in lines[2], "51.0" in lines[3]] == [True] * 4
        assert lines[0].split()[0] == "★"
        await until(pilot, lambda: len(app.study.query(".slice")) == 1)
        drawn = str(app.study.query(".slice").first(Static).content)
        # A grid by factors is drawn by factors; seeds are one point and its range.
        assert drawn.startswith("test/accuracy by learning_rate (log)")
        assert (drawn.count("★"), drawn.count("●")) == (1, 3)
        await pilot.press("enter")
        await until(pilot, lambda: len(table.rows) == 7)
        await pilot.press("enter")
        # A column's title sorts, where the jump key has a letter, too; the best keeps its star.
        rates = [go for place, go in table.jump_targets() if not place.y][2]
        rates()
        await until(pilot, lambda: "★" in table.render_line(3).text)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: isinstance(app.screen, SavePreset))
        await pilot.press(*"best", "enter")
        await until(pilot, lambda: (presets_dir() / "best.toml").exists())
        best = load_config("best")
        assert (best.learning_rate, best.devices, best.device_ids) == (0.01, 2, ())
