"""The way of the focus: tab and shift+tab reach all that can be used, from top to bottom, and one sees where one is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widget import Widget

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.run_app import until
from tests.kit.runs_app import HOME, ListLister, info
from tests.kit.screen_text import screen_text
from tests.kit.shown import is_read
from tests.kit.stage import Stage, folded, run_screen
from tests.screens.test_compare_screen import make_runs
from tests.screens.test_devices_screen import Recorded
from tuiapp.screens.compare import CompareScreen
from tuiapp.screens.devices import DevicesScreen
from tuiapp.screens.dialog import Choice
from tuiapp.screens.export_dialog import ExportDialog, ReportDialog
from tuiapp.screens.preset_dialogs import SavePreset
from tuiapp.screens.quit import _question
from tuiapp.screens.run import RunScreen
from tuiapp.screens.runs import RunsScreen
from tuiapp.screens.workspace import Workspace
from tuiapp.trainers.state.summary import summarise
from tuiapp.widgets.chart_panel import ChartPanel
from tuiapp.widgets.config_form import ConfigForm

pytestmark = pytest.mark.nightly

Build = Callable[[Path], Screen[Any] | None]

RUNS = [info(2), info(1)]

SCREENS: dict[str, Build] = {
    "configure": lambda directory: None,
    "run": lambda directory: run_screen(h.running(2, gpus=True)),
    "run-failed": lambda directory: run_screen(interrupted.failed()),
    "runs": lambda directory: RunsScreen(HOME, ListLister(RUNS, "")),
    "compare": lambda directory: CompareScreen(list(map(summarise, make_runs(directory, 2)))),
    "devices": lambda directory: DevicesScreen(HOME, Recorded([[h.host_sample(1), h.device_sample(0, 1)]])),
    "leave": lambda directory: Choice(*_question([RUNS[0].directory.run_id])),
    "export": lambda directory: ExportDialog([h.RUN_ID]),
    "report": lambda directory: ReportDialog("report", 2),
    "save": lambda directory: SavePreset(suggested="mine", existing=()),
}


async def settle(pilot: Pilot[Any], shown: Screen[Any] | None) -> None:
    """Wait until all that can have the focus is there."""
    if shown is None:
        await until(pilot, lambda: any(form.is_mounted for form in pilot.app.screen.query(ConfigForm)))
    elif isinstance(shown, RunScreen):
        await folded(pilot, shown)
    else:
        await until(pilot, lambda: shown.is_mounted)
    if isinstance(shown, CompareScreen):
        await until(pilot, lambda: is_read(shown))
    if isinstance(shown, RunsScreen):
        alone = shown.query_one(Workspace).has_class("-alone")
        await until(pilot, lambda: alone or any(chart.region.area for chart in shown.query(ChartPanel)))
    await pilot.pause()


async def way(pilot: Pilot[Any], key: str) -> list[Widget]:
    """What has the focus, one after the other, until the first has it again."""
    seen: list[Widget] = []
    while True:
        await pilot.press(key)
        await pilot.pause()
        focused = pilot.app.screen.focused
        assert focused is not None
        if focused in seen:
            assert focused is seen[0]
            return seen
        seen.append(focused)


def beneath(lower: Widget, upper: Widget) -> bool:
    """Whether one lies under the other, at least in part of its columns."""
    a, b = upper.region, lower.region
    return a.bottom <= b.y and a.x < b.right and b.x < a.right


@pytest.mark.parametrize("size", [(160, 48), (80, 24)])
@pytest.mark.parametrize("name", SCREENS)
async def test_tab_goes_through_all_from_top_to_bottom(name: str, size: tuple[int, int], tmp_path: Path) -> None:
    shown = SCREENS[name](tmp_path)
    app = Stage(shown)
    async with app.run_test(size=size) as pilot:
        await settle(pilot, shown)
        there = [widget for widget in app.screen.walk_children(Widget) if widget.focusable and widget.region.area]
        seen = await way(pilot, "tab")
        assert set(seen) == set(there)
        first = seen.index(there[0])
        order = seen[first:] + seen[:first]
        # Where fields are scrolled out of sight, their places say nothing.
        for place, widget in enumerate(order if size[1] > 24 else []):
            assert not any(beneath(widget, later) for later in order[place + 1 :]), widget
        back = await way(pilot, "shift+tab")
        assert set(back) == set(seen)
        start = back.index(seen[-1])
        assert back[start:] + back[:start] == seen[::-1]


@pytest.mark.by_hand
@pytest.mark.parametrize("name", SCREENS)
async def test_one_sees_where_one_is(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without colour too, wherever there is more than one place to be."""
    monkeypatch.setenv("NO_COLOR", "1")
    shown = SCREENS[name](tmp_path)
    app: App[Any] = Stage(shown)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot, shown)
        pictures = {}
        for widget in await way(pilot, "tab"):
            widget.focus()
            await until(pilot, lambda: app.screen.focused is widget)  # noqa: B023, called at once
            await pilot.pause()
            pictures[widget] = screen_text(app)
        assert len(set(pictures.values())) == len(pictures)
