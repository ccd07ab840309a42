"""Pictures of Runs, Compare, Devices and a replay, and of what is asked there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from textual.pilot import Pilot
from textual.screen import Screen

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.recorded import CONFIG, record
from tests.kit.runs_app import HOME, ListLister, info
from tests.kit.shown import is_current, is_read
from tests.kit.stage import Stage, matrix, press, until
from tests.screens.snapshots.conftest import ComparePicture
from tests.screens.test_devices_screen import Recorded
from tests.unit.state.test_replay import Clock, Source, journal
from tuiapp.feeds.feed import ReplayFeed
from tuiapp.library.chart_view import change_view
from tuiapp.screens.compare import CompareScreen
from tuiapp.screens.devices import DevicesScreen
from tuiapp.screens.dialog import Choice
from tuiapp.screens.quit import _question
from tuiapp.screens.run import RunScreen
from tuiapp.screens.runs import RunsScreen
from tuiapp.screens.workspace import RunsCharts, Workspace
from tuiapp.trainers.contract.events import AnyEvent, Facts, Metrics
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import About
from tuiapp.trainers.state.summary import RunInfo, summarise
from tuiapp.widgets.chart_panel import ChartPanel
from tuiapp.widgets.run_table import RunTable

RUNS = [
    info(9, "running"),
    info(8, "completed", model="resnet18", dataset="fashion-mnist"),
    info(7, "failed", reason="rank 1 was killed by SIGKILL at step 418 — the kernel's out-of-memory killer?"),
    info(6, "stopped", backend="jax-sharding", reason="on request, after step 72"),
    info(5, "lost", backend="keras-torch", model="convnet", reason="its supervisor died without saying why"),
    info(4, "completed", backend="jax-pmap", devices=8, platform="cuda"),
    info(3, "unreadable", problem="run.toml: line 3 is not valid TOML"),
    info(2, "completed", model="mlp", learning_rate=0.01),
    info(1, "completed", model="mlp"),
]

NAMED = [
    replace(RUNS[0], about=About(name="baseline", tags=("lr", "sweep"), note="Warm-up helps.\nNext: 0.3")),
    replace(RUNS[1], about=About(name="resnet18, 100 epochs, cosine", tags=("long",))),
    *RUNS[2:4],
]


def seeds(first: int, count: int, group: str = "", *, says: dict[str, Any] | None = None, **keys: Any) -> list[RunInfo]:
    """Runs that differ in seed alone, the last of which goes on."""
    made = [info(first + n, "running" if n == count - 1 else "completed", seed=n, **keys) for n in range(count)]
    return [
        replace(
            one,
            about=About(group=group, name=f"{group}/{first + n}" if group else ""),
            summary=msgspec.structs.replace(one.summary, test_accuracy=0.9 + 0.011 * ((first + n) * 7 % 8)),
            facts=Facts(time=0.0, mono=0.0, config={**says, "seed": n}) if says else one.facts,
        )
        for n, one in enumerate(made)
    ]


GROUPED = [
    *seeds(1, 3, "lr-sweep", learning_rate=0.1),
    *seeds(4, 3, "lr-sweep", learning_rate=0.01),
    *seeds(11, 4, backend="script", script="train.py", says={"lr": 0.0003}),
    *seeds(15, 2, model="mlp"),
    *RUNS[2:4],
]

Build = Callable[[Path], Screen[Any]]

UNLISTED = """Cannot list /home/ada/runs: Permission denied.
Choose another directory with --runs-dir or TUIAPP_RUNS_DIR."""


def runs(infos: list[RunInfo] | None, problem: str = "") -> Build:
    def build(directory: Path) -> Screen[Any]:
        # There is nothing to read of these runs.
        change_view({"charts": False})
        return RunsScreen(HOME, ListLister(infos, problem))

    return build


def workspace(count: int, *, seeds: int = 1) -> Build:
    """Runs of a sweep, each with curves of its own, with so many seeds of each learning rate."""

    def of_run(n: int, event: AnyEvent) -> AnyEvent:
        if not isinstance(event, Metrics):
            return event
        values = {
            name: [
                value and value * (1 + 0.4 * (n % 7) if name.endswith("loss") else 1 - 0.05 * (n % 7))
                for value in column
            ]
            for name, column in event.values.items()
        }
        return msgspec.structs.replace(event, values=values)

    def build(directory: Path) -> Screen[Any]:
        found = [
            record(
                directory,
                f"20261120T1015{n:02}-torch-ddp-net-{n:04x}",
                [of_run(n, event) for event in h.completed()],
                msgspec.structs.replace(
                    CONFIG, learning_rate=10.0 ** -(n // seeds) if count < 10 else CONFIG.learning_rate, seed=n
                ),
            )
            for n in range(count)
        ]
        return RunsScreen(directory, ListLister([summarise(run) for run in reversed(found)]))

    return build


def compare(count: int) -> Build:
    def build(directory: Path) -> Screen[Any]:
        made = [h.completed(), interrupted.failed(), interrupted.stopped(), interrupted.with_nan()]
        return CompareScreen(
            [
                summarise(
                    record(
                        directory,
                        f"20261120T10150{n}-torch-ddp-net-{n:04x}",
                        made[n % 4],
                        msgspec.structs.replace(CONFIG, learning_rate=10.0 ** -(n % 4 + 1), seed=n),
                    )
                )
                for n in range(count)
            ]
        )

    return build


def replay(directory: Path) -> Screen[Any]:
    clock = Clock()
    (directory / h.RUN_ID).mkdir()
    run = journal(directory / h.RUN_ID, h.completed())
    return RunScreen(RunDir(run.path), ReplayFeed(run, 4.0, clock=clock, source=Source))


def devices(gpus: int, problem: str = "") -> Build:
    samples: list[list[AnyEvent]] = [
        [h.host_sample(second), *[h.device_sample(n, second) for n in range(gpus)]] for second in (1, 2, 3)
    ]
    return lambda directory: DevicesScreen(HOME, Recorded(samples, problem))


def leaving(count: int) -> Build:
    return lambda directory: Choice(*_question([one.directory.run_id for one in RUNS[:count]]))


async def compared(pilot: Pilot[Any], screen: Screen[Any]) -> None:
    assert isinstance(screen, CompareScreen)
    await until(pilot, lambda: screen.is_mounted and is_read(screen))


async def in_the_middle(pilot: Pilot[Any], screen: Screen[Any]) -> None:
    assert isinstance(screen, RunScreen)
    feed = screen._reader.replay
    assert feed is not None
    await until(pilot, lambda: screen.is_mounted and feed.duration > 0)
    feed.toggle_pause()
    feed.seek(8.1)
    await until(pilot, lambda: screen.state.step == 120 and is_current(screen.query_one(ChartPanel)))


async def charted(pilot: Pilot[Any], screen: Screen[Any]) -> None:
    """Marks all runs, and waits for their charts."""
    await until(pilot, lambda: screen.is_mounted and bool(screen.query_one(RunTable).row))
    assert isinstance(screen, RunsScreen)
    marked = len(screen._shown)
    await press(pilot, ["x", "down"] * marked)
    if not screen.query_one(Workspace).shows_charts:
        await press(pilot, "C")

    def is_drawn() -> bool:
        if not screen.query(RunsCharts):
            return False
        charts = screen.query_one(RunsCharts)
        read = len(charts._feed.runs) == marked and not charts._source.is_reading
        return read and charts._seen == charts._feed.version and all(map(is_current, charts.grid.panels))

    await until(pilot, is_drawn)


async def there(pilot: Pilot[Any], screen: Screen[Any]) -> None:
    await until(pilot, lambda: screen.is_mounted)


class Scene(NamedTuple):
    """A screen, and what is done on it."""

    build: Build
    keys: tuple[str, ...] = ()
    ready: Callable[[Pilot[Any], Screen[Any]], Awaitable[None]] = there
    unicode: str = "on"


SCENES: dict[str, Scene] = {
    "runs": Scene(runs(RUNS)),
    "runs-none": Scene(runs([])),
    "runs-loading": Scene(runs(None)),
    "runs-problem": Scene(runs([], UNLISTED)),
    "runs-marked": Scene(runs(RUNS), ("down", "x", "down", "x", "down", "down", "x")),
    "runs-filtered": Scene(runs(RUNS), ("slash", *"completed", "enter", "7")),
    "runs-nothing-found": Scene(runs(RUNS), ("slash", *"imagenet")),
    "runs-help": Scene(runs(RUNS), ("question_mark",)),
    "runs-delete": Scene(runs(RUNS), ("down", "d")),
    "runs-export": Scene(runs(RUNS), ("down", "e")),
    "runs-named": Scene(runs(NAMED)),
    "runs-about": Scene(runs(NAMED), ("i", *"baseline", "tab", *"lr sweep")),
    "runs-many": Scene(runs([info(n, model="mlp") for n in range(200, 0, -1)]), ("end",)),
    "runs-groups": Scene(runs(GROUPED), ("enter", "down", "enter", "down", "B", "home", "x")),
    "runs-columns": Scene(runs(GROUPED), ("F", *"learn", "space")),
    "runs-unicode-off": Scene(runs(RUNS), unicode="off"),
    "workspace": Scene(workspace(3), ready=charted),
    "workspace-seeds": Scene(workspace(9, seeds=3), ready=charted),
    "workspace-band": Scene(workspace(30), ready=charted),
    "compare-2": Scene(compare(2), ready=compared),
    "compare-4": Scene(compare(4), ("m", "down", "enter"), compared),
    "compare-8": Scene(compare(8), ready=compared),
    "compare-by-time": Scene(compare(3), ("t", "y", "1"), compared),
    "compare-zoomed": Scene(compare(3), ("plus", "plus", *["left"] * 4), compared),
    "compare-values": Scene(compare(8), ("v", *["shift+left"] * 2), compared),
    "compare-grid": Scene(compare(3), ready=compared, keys=("G",)),
    "compare-grid-large": Scene(compare(3), ready=compared, keys=("G", "right", "enter", "v", "shift+left")),
    "replay": Scene(replay, ready=in_the_middle),
    "devices-cpu": Scene(devices(0)),
    "devices-2": Scene(devices(2)),
    "devices-8": Scene(devices(8)),
    "devices-gone": Scene(devices(2, "nothing was heard from the GPU driver for 30 s: it hangs")),
    "leave-question": Scene(leaving(1)),
    "leave-question-3": Scene(leaving(3)),
}


SMALL_TOO = (
    "compare-2",
    "compare-8",
    "compare-grid",
    "compare-values",
    "devices-8",
    "devices-cpu",
    "leave-question",
    "replay",
    "runs",
    "runs-about",
    "runs-groups",
    "runs-many",
    "runs-marked",
    "runs-none",
    "runs-problem",
    "workspace",
)
"""Where little room changes the layout: at 80×24, too."""

LIGHT = ("compare-4", "devices-8")
"""Where colour says most: in the light theme, too."""

LARGE = ("compare-8", "devices-8", "replay", "workspace", "workspace-seeds")
"""Where much room changes the layout: at 200×60, too."""


@pytest.mark.parametrize(("name", "size", "theme"), matrix(SCENES, small=SMALL_TOO, light=LIGHT, large=LARGE))
async def test_runs(
    name: str,
    size: tuple[int, int],
    theme: str,
    compare_picture: ComparePicture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = SCENES[name]
    # Where an export would go is said.
    monkeypatch.chdir("/tmp")
    # Nor does it say where the test keeps its runs.
    monkeypatch.setenv("HOME", str(tmp_path))
    screen = scene.build(tmp_path)

    async def play(pilot: Pilot[Any]) -> None:
        await scene.ready(pilot, screen)
        await press(pilot, scene.keys)

    await compare_picture(Stage(screen, theme=theme, unicode=scene.unicode), size, play)
