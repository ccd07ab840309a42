"""The Compare screen: what it draws, what it says, and what its keys do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import OptionList, Static

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.recorded import CONFIG, record
from tests.kit.run_app import until
from tests.kit.shown import is_read
from tuiapp.screens.compare import CompareScreen, CompareTable
from tuiapp.screens.pickers import MetricList
from tuiapp.trainers.contract.events import Facts, LogLine, encode
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import Change, change_about
from tuiapp.trainers.state.summary import summarise
from tuiapp.trainers.state.text import MISSING
from tuiapp.view.chart import LEFT_CELLS
from tuiapp.widgets.plot import Plot


class CompareApp(App[None]):
    def __init__(self, runs: list[RunDir]) -> None:
        super().__init__()
        self.compare_screen = CompareScreen(list(map(summarise, runs)))

    def on_mount(self) -> None:
        self.push_screen(self.compare_screen)

    def said(self, selector: str) -> str:
        return str(self.compare_screen.query_one(selector, Static).content)

    @property
    def plot(self) -> str:
        plot = self.compare_screen.query_one(Plot)
        return "\n".join(plot.render_line(y).text for y in range(plot.size.height)) if plot.display else ""


def make_runs(root: Path, count: int) -> list[RunDir]:
    return [
        record(
            root,
            f"20261120T10150{n}-torch-ddp-net-{n:04x}",
            h.completed() if n % 2 else interrupted.failed(),
            msgspec.structs.replace(CONFIG, learning_rate=10.0**-n),
        )
        for n in range(count)
    ]


async def test_what_scripts_say_of_their_configuration_is_compared(tmp_path: Path) -> None:
    noise = [LogLine(rank=0, stream="stdout", text="x" * 1000, **h.at(1)) for _ in range(100)]
    runs = []
    for n in range(2):
        begun, *rest = h.completed()
        said = Facts(config={"dropout": n / 4, "layers": 3}, **h.at(1))
        runs.append(record(tmp_path, f"20261120T10150{n}-script-train-{n:04x}", [begun, *noise, said, *noise, *rest]))
    app = CompareApp(runs)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "dropout" in app.said("#rows"))
        assert "0.25" in app.said("#rows")
        assert "layers" not in app.said("#rows")


async def choose(pilot: Pilot[Any], app: CompareApp, label: str) -> None:
    """Choose a metric from the list."""
    await pilot.press("m")
    await until(pilot, lambda: isinstance(app.screen, MetricList))
    options = app.screen.query_one(OptionList)
    options.highlighted = next(n for n, one in enumerate(options.options) if str(one.prompt).strip().startswith(label))
    await pilot.press("enter")
    await until(pilot, lambda: app.screen is app.compare_screen)


async def read(pilot: Pilot[Any], app: CompareApp) -> None:
    # The table's scroll bar takes its line from the chart when the first drawing has been laid out.
    for _ in range(2):
        await until(pilot, lambda: app.compare_screen.is_mounted and is_read(app.compare_screen))


async def test_groups_are_means_with_bands_or_each_run(tmp_path: Path) -> None:
    runs = [
        record(
            tmp_path,
            f"20261120T10150{n}-torch-ddp-net-{n:04x}",
            h.completed() if n < 3 else interrupted.failed(),
            msgspec.structs.replace(CONFIG, seed=n % 3, learning_rate=0.1 if n < 3 else 0.01),
        )
        for n in range(6)
    ]
    app = CompareApp(runs)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await read(pilot, app)
        heads, *lines = app.said("#rows").splitlines()
        assert "★ test/accuracy ↑" in heads
        assert [line[0] for line in lines] == ["a", "b"]
        assert all("3 runs" in line for line in lines)
        assert ("✓ 3 completed" in lines[0], "✖ 3 failed" in lines[1]) == (True, True)
        assert "99.89 %" in lines[0]
        chart = app.compare_screen.chart.drawn
        assert [(curve.label, curve.color) for curve in chart.bands] == [("a", 0), ("b", 1)]
        assert "groups: mean" in app.said("#heading")
        # One of two curves is hidden; all are shown again when the groups are unfolded.
        await pilot.press("2")
        assert len(app.compare_screen.chart.drawn.bands) == 1
        await pilot.press("z")
        await until(pilot, lambda: len(app.compare_screen.chart.drawn.curves) == 6)
        assert app.compare_screen.chart.drawn.bands == []
        assert [line[0] for line in app.said("#rows").splitlines()[1:]] == list("abcdef")
        await pilot.press("z", "v")
        await until(pilot, lambda: len(app.compare_screen.chart.drawn.bands) == 2)
        assert "step 290" in app.said("#rows").splitlines()[0]


async def test_runs_of_a_group_that_differ_in_more_than_their_seed_are_lines_of_one_colour(tmp_path: Path) -> None:
    runs = [
        record(
            tmp_path,
            f"20261120T10150{n}-torch-ddp-net-{n:04x}",
            h.completed(),
            msgspec.structs.replace(CONFIG, seed=n % 2, learning_rate=10.0 ** -min(n, 3)),
        )
        for n in range(5)
    ]
    for run in runs[:3]:
        change_about(run, Change(group="rates"))
    app = CompareApp(runs)
    async with app.run_test(size=(120, 40)) as pilot:
        await read(pilot, app)
        drawn = app.compare_screen.chart.drawn
        assert [(curve.label, curve.color) for curve in drawn.curves] == [("", 0), ("", 0), ("a", 0), ("b", 1)]
        assert [band.label for band in drawn.bands] == ["b"]
        assert "groups: mean, least to greatest · a: a line per run" in app.said("#heading")
        await choose(pilot, app, "loss")
        await read(pilot, app)
        drawn = app.compare_screen.chart.drawn
        # At the cursor such a group has the least and the greatest of its lines.
        drawn.curves[0].middle += 1.0
        values = app.compare_screen._source.values(drawn, 40, "loss")
        least, greatest = map(float, values[0].split("–"))
        assert greatest == pytest.approx(least + 1.0, abs=0.002)
        assert float(values[1]) == least


async def test_columns_that_do_not_fit_are_reached_with_the_arrow_keys(tmp_path: Path) -> None:
    app = CompareApp(make_runs(tmp_path, 3))
    async with app.run_test(size=(80, 24)) as pilot:
        await read(pilot, app)
        table = app.compare_screen.query_one(CompareTable)
        table.focus()
        height = table.size.height
        assert "epochs done" not in app.said("#rows")
        for _ in range(12):
            await pilot.press("right")
        heading, *rows = app.said("#rows").splitlines()[:4]
        assert heading.startswith("← ")
        assert heading.split()[2] == "run"
        assert heading.endswith("epochs done")
        assert [row[0] for row in rows] == ["a", "b", "c"]
        # No bar takes a line.
        assert table.size.height == height
        await pilot.press(*["left"] * 12)
        assert app.said("#rows").split()[:2] == ["run", "state"]


async def test_keys_change_what_is_drawn(tmp_path: Path) -> None:
    app = CompareApp(make_runs(tmp_path, 2))
    async with app.run_test(size=(120, 40)) as pilot:
        await read(pilot, app)
        assert app.said("#heading").startswith("Compare 2 runs  accuracy"), "what they are best by"
        await choose(pilot, app, "loss")
        await pilot.press("t", "t", "t", "t")
        await read(pilot, app)
        before = app.plot
        await pilot.press("t")
        assert "by time" in app.said("#heading")
        assert app.plot != before
        await pilot.press("t", "t", "t")
        assert app.plot == before
        for key, words in {"y": "logarithmic", "right_square_bracket": "smoothing 0.8"}.items():
            await pilot.press(key)
            assert words in app.said("#heading")
        await pilot.press("1")
        assert "a" not in app.plot
        await pilot.press("2")
        assert app.plot == ""
        assert "all curves are hidden" in app.said("#instead")
        await pilot.press("1", "2", "8")
        assert "a" in app.plot


async def test_the_cursor_reads_the_values_of_all_runs(tmp_path: Path) -> None:
    app = CompareApp(make_runs(tmp_path, 3))
    async with app.run_test(size=(120, 40)) as pilot:
        await read(pilot, app)
        chart = app.compare_screen.chart

        await choose(pilot, app, "loss")
        await read(pilot, app)

        def column() -> list[str]:
            rows = app.said("#rows").replace("★", " ").splitlines()[1:]
            return [line.split()[3 if line[2] == "━" else 2] for line in rows]

        await pilot.press("v")
        assert "step 290 · paused · v: resume" in app.said("#heading")
        assert app.said("#rows").split()[:3] == ["run", "step", "290"]
        # Those that ended before have no value here.
        assert column()[::2] == [MISSING, MISSING]
        assert float(column()[1]) == pytest.approx(h.loss_at(290, 0), abs=0.05)
        await pilot.press(*["shift+left"] * 9)
        assert chart.cursor is not None
        step = round(chart.drawn.x_at(chart.cursor))
        assert f"step {step}" in app.said("#heading")
        assert 10 < step < 72
        assert all(float(value) > 0.5 for value in column())
        assert "│" in app.plot
        # A curve that is off has none; the others keep theirs.
        await pilot.press("1")
        assert column()[0] == MISSING
        await pilot.press("v")
        assert chart.cursor is None
        assert "│" not in "".join(line[8:] for line in app.plot.splitlines())
        assert app.said("#rows").split()[:2] == ["run", "state"]
        # A click reads, too; a key for another metric reads no more.
        await pilot.click(chart.query_one(Plot), offset=(LEFT_CELLS + 20, 2))
        assert chart.cursor == 40
        await choose(pilot, app, "step time")
        assert chart.cursor is None


async def test_a_run_that_goes_on_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuiapp.feeds.compare_feed.POLL_S", 0.05)
    runs = make_runs(tmp_path, 2)
    live = record(tmp_path, "20261120T101509-torch-ddp-net-00ff", h.running(last_step=60))
    lock = live.take_lock()
    app = CompareApp([runs[0], live])
    async with app.run_test(size=(120, 40)) as pilot:
        await read(pilot, app)
        before = app.plot
        assert "running" in app.said("#rows")
        with live.journal.open("ab") as file:
            file.write(b"".join(encode(h.steps(rank, 61, 140, 9.0)) for rank in range(2)))
            file.write(encode(h.ended("completed", 9.0)))
        os.close(lock)
        await until(pilot, lambda: "running" not in app.said("#rows") and app.plot != before)
