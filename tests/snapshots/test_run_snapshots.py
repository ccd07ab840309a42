"""Pictures of the Run screen: a run in all its states, on one device and on sixteen, on CPUs and on GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from textual.pilot import Pilot

from tests import histories as h
from tests.screens.test_trouble import hanging
from tests.snapshots.conftest import ComparePicture
from tests.snapshots.stage import Stage, folded, matrix, press, run_screen
from trainers.contract.events import AnyEvent


class Scene(NamedTuple):
    """A run, and what is done with it."""

    events: Callable[[], list[AnyEvent]]
    now: float = 8.9
    keys: tuple[str, ...] = ()
    lost: bool = False
    unicode: str = "on"
    no_color: bool = False


SCENES: dict[str, Scene] = {
    "running": Scene(h.running),
    "waiting": Scene(list),
    "preparing": Scene(lambda: h.beginning()[:-2], now=2.5),
    "training": Scene(h.beginning, now=2.5),
    "alert": Scene(h.with_nan),
    "hang": Scene(hanging, now=41.0),
    "stopping": Scene(lambda: h.stopped()[:-2]),
    "stopped": Scene(h.stopped),
    "resumed": Scene(lambda: [*h.stopped(), *h.resumed()], now=64.0),
    "completed": Scene(h.completed),
    "failed": Scene(h.failed),
    "lost": Scene(h.running, lost=True),
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
    "panel-log": Scene(lambda: h.running(8, gpus=True), keys=("5",)),
    "failed-log": Scene(h.failed, keys=("5",)),
    "search": Scene(h.running, keys=("slash", *"epoch")),
    "one-rank": Scene(h.running, keys=("y", "r", "r")),
    "metric": Scene(h.running, keys=("m",)),
    "second-chart": Scene(h.running, keys=("M",)),
    "cursor": Scene(h.running, keys=("v", "left", "left")),
    "zoom": Scene(h.running, keys=("plus", "plus")),
    "help": Scene(h.running, keys=("question_mark",)),
    "stop-question": Scene(h.running, keys=("s",)),
    "resume-question": Scene(h.stopped, keys=("u",)),
    "unicode-off": Scene(lambda: h.running(4, gpus=True), unicode="off"),
    "no-color": Scene(lambda: h.running(4, gpus=True), no_color=True),
    "no-color-failed": Scene(h.failed, no_color=True),
}

LIGHT = ("alert", "failed", "gpu-8", "panel-devices", "panel-sharding")
"""Where colour says most: in the light theme at each size."""


@pytest.mark.parametrize(("name", "size", "theme"), matrix(SCENES, light=LIGHT))
async def test_run(
    name: str,
    size: tuple[int, int],
    theme: str,
    compare_picture: ComparePicture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = SCENES[name]
    if scene.no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    screen = run_screen(scene.events(), now=scene.now, lost=scene.lost)

    async def play(pilot: Pilot[Any]) -> None:
        await folded(pilot, screen)
        await press(pilot, scene.keys)

    app = Stage(screen, theme=theme, unicode=scene.unicode)
    await compare_picture(app, size, play)
