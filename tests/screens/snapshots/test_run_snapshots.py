"""Pictures of the Run screen: a run in all its states, on one device and on sixteen, on CPUs and on GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from textual.pilot import Pilot

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit import node_histories as nodes
from tests.kit import own_metrics as own
from tests.kit.recorded import CONFIG
from tests.kit.runs_app import info
from tests.kit.sharded import two_axes
from tests.kit.shown import is_current
from tests.kit.stage import RUNS_DIR, Stage, folded, matrix, press, run_screen, until
from tests.screens.snapshots.conftest import ComparePicture
from tests.screens.test_trouble import hanging
from tuiapp.feeds import end_watch
from tuiapp.screens.resume_dialog import ResumeDialog
from tuiapp.trainers.config.run_config import to_toml
from tuiapp.trainers.contract.events import AnyEvent, Metrics
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.widgets.chart_panel import ChartPanel
from tuiapp.widgets.text_view import TextView


class Scene(NamedTuple):
    """A run, and what is done with it."""

    events: Callable[[], list[AnyEvent]]
    now: float = 8.9
    keys: tuple[str, ...] = ()
    lost: bool = False
    removed: bool = False
    """Its directory is gone too."""
    unicode: str = "on"
    no_color: bool = False
    resumes: bool = False
    """Its directory has what a resume asks for, and the keys ask."""


def many_metrics() -> list[AnyEvent]:
    """A run of 60 layers, each with metrics of its own."""
    values: dict[str, list[float | None]] = {
        f"layer {n}/{what}": [1.0 * n] for n in range(60) for what in ("norm", "gradient norm")
    }
    return [*h.running(), Metrics(rank=0, first_step=130, values=values, **h.at(8.8))]


SCENES: dict[str, Scene] = {
    "running": Scene(h.running),
    "waiting": Scene(list),
    "preparing": Scene(lambda: h.beginning()[:-2], now=2.5),
    "training": Scene(h.beginning, now=2.5),
    "alert": Scene(interrupted.with_nan),
    "parted": Scene(interrupted.parted),
    "parted-sharding": Scene(interrupted.parted, keys=("4",)),
    "hang": Scene(hanging, now=41.0),
    "stopping": Scene(lambda: interrupted.stopped()[:-2]),
    "stopped": Scene(interrupted.stopped),
    "resumed": Scene(lambda: [*interrupted.stopped(), *interrupted.resumed()], now=64.0),
    "completed": Scene(h.completed),
    "failed": Scene(interrupted.failed),
    "lost": Scene(lambda: [*h.running(), h.checkpoint(116, 8.6, best=True)], lost=True),
    "removed": Scene(h.running, lost=True, removed=True),
    "gpu-1": Scene(lambda: h.running(1, gpus=True)),
    "gpu-2": Scene(lambda: h.running(2, gpus=True)),
    "gpu-8": Scene(lambda: h.running(8, gpus=True)),
    "gpu-16": Scene(lambda: h.running(16, gpus=True)),
    "cpu-1": Scene(lambda: h.running(1)),
    "cpu-8": Scene(lambda: h.running(8)),
    "cpu-16": Scene(lambda: h.running(16)),
    "panel-loss": Scene(lambda: h.running(8, gpus=True), keys=("1",)),
    "panel-devices": Scene(lambda: h.running(8, gpus=True), keys=("2",)),
    "panel-ranks": Scene(lambda: h.running(8, gpus=True), keys=("3",)),
    "panel-sharding": Scene(lambda: h.running(8, gpus=True), keys=("4",)),
    "mesh-sharding": Scene(two_axes, keys=("4",)),
    "mesh-4-sharding": Scene(lambda: two_axes(1, 4), keys=("4",)),
    "panel-log": Scene(lambda: h.running(8, gpus=True), keys=("5",)),
    "panel-epochs": Scene(h.running, keys=("8",)),
    "failed-log": Scene(interrupted.failed, keys=("5",)),
    "search": Scene(h.running, keys=("slash", *"epoch")),
    "one-rank": Scene(h.running, keys=("y", "r", "r")),
    "profile": Scene(lambda: [*h.running(), *h.profiles()], keys=("P",)),
    "profile-memory": Scene(lambda: [*h.running(gpus=True), *h.profiles(memory=True)], keys=("P",)),
    "metrics": Scene(h.running, keys=("m",)),
    "metrics-many": Scene(many_metrics, keys=("m", *"layer 1", "down")),
    "metric": Scene(h.running, keys=("m", "down", "enter")),
    "second-chart": Scene(h.running, keys=("M", "down", "down", "enter")),
    "cursor": Scene(h.running, keys=("v", "left", "left")),
    "heat": Scene(lambda: nodes.running(2, 32), keys=("1", "H", "down", "v")),
    "heat-no-color": Scene(lambda: h.running(8, gpus=True), keys=("2",), no_color=True),
    "zoom": Scene(h.running, keys=("plus", "plus")),
    "help": Scene(h.running, keys=("question_mark",)),
    "stop-question": Scene(h.running, keys=("s",)),
    "resume-question": Scene(interrupted.stopped, keys=("u",), resumes=True),
    "unicode-off": Scene(lambda: h.running(4, gpus=True), unicode="off"),
    "no-color": Scene(lambda: h.running(4, gpus=True), no_color=True),
    "no-color-failed": Scene(interrupted.failed, no_color=True),
    "failed-ranks": Scene(interrupted.failed, keys=("3",)),
    "own-metrics": Scene(lambda: own.running(2), now=62.0),
    "own-metrics-completed": Scene(own.completed, now=62.0),
    "own-metrics-ranks": Scene(lambda: own.running(4), now=62.0, keys=("3",)),
    "grid": Scene(lambda: h.running(8, gpus=True), keys=("G",)),
    "grid-own": Scene(lambda: own.running(2), now=62.0, keys=("G", "right", "down")),
    "grid-filter": Scene(lambda: own.running(2), now=62.0, keys=("G", "slash", *"loss")),
    "grid-large": Scene(lambda: own.running(2), now=62.0, keys=("G", "end", "left", "enter")),
    "grid-values": Scene(lambda: own.running(2), now=62.0, keys=("G", "end", "left", "enter", "v", "shift+left")),
    "grid-many": Scene(many_metrics, keys=("G", "pagedown")),
    "grid-none": Scene(lambda: own.running(2)[:3], now=2.0, keys=("G",)),
    "nodes-2": Scene(nodes.running),
    "nodes-4": Scene(nodes.troubled),
    "nodes-ranks": Scene(nodes.troubled, keys=("3", "down", "enter")),
    "nodes-devices": Scene(nodes.troubled, keys=("2", "down")),
    "nodes-devices-lost": Scene(nodes.troubled, keys=("2", "end")),
    "nodes-devices-all": Scene(nodes.troubled, keys=("2", "enter")),
    "nodes-cpu": Scene(lambda: nodes.running(2, 4, gpus=False)),
    "nodes-cpu-devices": Scene(lambda: nodes.running(2, 4, gpus=False), keys=("2",)),
    "nodes-64": Scene(lambda: nodes.running(64, 512)),
    "nodes-64-ranks": Scene(lambda: nodes.running(64, 512), keys=("3",)),
    "nodes-64-devices": Scene(lambda: nodes.running(64, 512), keys=("2",)),
    "nodes-64-devices-30": Scene(lambda: nodes.running(64, 512), keys=("2", *["down"] * 30)),
    "nodes-64-sharding": Scene(lambda: nodes.running(64, 512), keys=("4",)),
    "nodes-log": Scene(nodes.troubled, keys=("5",)),
    "nodes-hang": Scene(nodes.hanging, now=41.0),
    "queued": Scene(lambda: [nodes.queued()], now=300.0),
    "grid-unicode-off": Scene(lambda: own.running(2), now=62.0, keys=("G",), unicode="off"),
}

SMALL_TOO = (
    "training",
    "alert",
    "completed",
    "cpu-8",
    "cursor",
    "failed",
    "failed-ranks",
    "gpu-1",
    "gpu-8",
    "grid",
    "grid-many",
    "grid-values",
    "hang",
    "help",
    "mesh-sharding",
    "metrics-many",
    "nodes-2",
    "nodes-64",
    "nodes-64-devices",
    "nodes-64-ranks",
    "nodes-64-sharding",
    "own-metrics",
    "panel-devices",
    "panel-epochs",
    "panel-log",
    "panel-loss",
    "panel-ranks",
    "panel-sharding",
    "preparing",
    "running",
    "second-chart",
    "stop-question",
    "waiting",
)
"""Where little room changes the layout: at 80×24, too."""

LIGHT = ("grid", "alert", "failed", "gpu-8", "nodes-4", "nodes-ranks", "panel-devices", "panel-sharding")
"""Where colour says most: in the light theme, too."""

LARGE = (
    "grid",
    "own-metrics",
    "gpu-8",
    "gpu-16",
    "cpu-16",
    "failed",
    "hang",
    "second-chart",
    "panel-devices",
    "panel-sharding",
    "nodes-4",
    "nodes-ranks",
    "nodes-64",
    "nodes-64-devices",
    "nodes-64-ranks",
    "nodes-64-sharding",
    "nodes-devices",
    "nodes-2",
    "queued",
)
"""Where much room changes the layout: at 200×60, too."""


@pytest.mark.parametrize(("name", "size", "theme"), matrix(SCENES, small=SMALL_TOO, light=LIGHT, large=LARGE))
async def test_run(
    name: str,
    size: tuple[int, int],
    theme: str,
    compare_picture: ComparePicture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = SCENES[name]
    if scene.no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    runs_dir = RUNS_DIR
    if scene.resumes or (scene.lost and not scene.removed):
        (tmp_path / h.RUN_ID).mkdir()
        runs_dir = tmp_path
    if scene.resumes:
        (tmp_path / h.RUN_ID / "run.toml").write_text(to_toml(CONFIG))
    screen = run_screen(scene.events(), now=scene.now, lost=scene.lost, runs_dir=runs_dir)

    async def play(pilot: Pilot[Any]) -> None:
        await folded(pilot, screen)
        await press(pilot, scene.keys)
        await until(pilot, lambda: not scene.resumes or isinstance(pilot.app.screen, ResumeDialog))
        # Those of hundreds of ranks are drawn seconds later.
        await until(pilot, lambda: all(map(is_current, screen.query(ChartPanel))))

    app = Stage(screen, theme=theme, unicode=scene.unicode)
    await compare_picture(app, size, play)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])
async def test_pictures_and_texts(size: tuple[int, int], compare_picture: ComparePicture, tmp_path: Path) -> None:
    screen = run_screen([*h.running(), *h.media(RunDir(tmp_path / h.RUN_ID))], runs_dir=tmp_path)

    async def play(pilot: Pilot[Any]) -> None:
        await folded(pilot, screen)
        await press(pilot, ("9", "left", "left"))
        await until(pilot, lambda: "step 60" in screen.query_one("#media TextView", TextView).render().plain)
        await pilot.app.workers.wait_for_complete()
        assert screen.charts.cursor_step is not None
        await press(pilot, ("right",))
        await pilot.app.workers.wait_for_complete()

    await compare_picture(Stage(screen), size, play)


@pytest.mark.parametrize(("size", "theme"), [((80, 24), "dark"), ((120, 40), "light")], ids=["80x24", "120x40-light"])
async def test_notice_that_other_runs_have_ended(
    size: tuple[int, int], theme: str, compare_picture: ComparePicture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(end_watch, "NOTICE_S", 600.0)
    screen = run_screen(h.running())

    async def end(pilot: Pilot[Any]) -> None:
        await folded(pilot, screen)
        assert isinstance(pilot.app, Stage)
        for ended in (info(8, "completed"), info(7, "failed", reason="rank 1 was killed by SIGKILL at step 418")):
            pilot.app._ends.ring(ended)
        # The one on show says so itself.
        pilot.app._ends.ring(replace(info(6, "completed"), directory=screen.run))

    await compare_picture(Stage(screen, theme=theme), size, end, notifications=True)
