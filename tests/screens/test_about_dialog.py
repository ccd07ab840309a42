"""Name, tags and note of a run: changed on the screens, and shown there."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Button, Input, Static, TextArea

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.configure_app import Launches, Start, field, screen, type_into
from tests.kit.recorded import record, record_checkpoint
from tests.kit.run_app import LARGE, SMALL, RunApp, settled, until
from tests.kit.runs_app import ListLister, RunsApp
from tuiapp.library.find import titled
from tuiapp.screens.about_dialog import AboutDialog
from tuiapp.screens.dialog import Choice
from tuiapp.screens.quit import farewell
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import About, Change, change_about, read_about
from tuiapp.trainers.state.summary import summarise
from tuiapp.widgets.launch_facts import LaunchFacts
from tuiapp.widgets.run_header import RunHeader
from tuiapp.widgets.text_view import TextView


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = record(tmp_path, h.RUN_ID, interrupted.stopped())
    record_checkpoint(run, 58)
    return run


async def open_dialog(pilot: Pilot[None]) -> AboutDialog:
    await pilot.press("i")
    await until(pilot, lambda: isinstance(pilot.app.screen, AboutDialog))
    await pilot.pause()
    assert isinstance(pilot.app.screen, AboutDialog)
    return pilot.app.screen


@pytest.mark.nightly
@pytest.mark.parametrize("size", [LARGE, SMALL])
async def test_from_the_list(run: RunDir, size: tuple[int, int]) -> None:
    change_about(run, Change(tags=("lr", "old")))
    app = RunsApp(ListLister([summarise(run)]))
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: len(app.rows) == 1)
        dialog = await open_dialog(pilot)
        assert dialog.query_one("#accept").region.bottom < size[1]
        await pilot.press(*"baseline", "tab", "ctrl+u", *"lr sweep", "tab", *"rates", "tab", *"warm", "enter", *"up")
        # Meanwhile, somebody else adds a tag.
        change_about(run, Change(tags=("other",)))
        await pilot.press("ctrl+s")
        await until(pilot, lambda: read_about(run)[0].name != "")
        assert read_about(run)[0] == About(
            name="baseline", tags=("lr", "other", "sweep"), note="warm\nup", group="rates"
        )
        app.lister.put(summarise(run))
        await until(pilot, lambda: "baseline" in app.rows[0])
        said = str(app.runs_screen.query_one("#details", TextView).render())
        assert said.startswith(f"baseline · {run.run_id} · lr, other, sweep · warm\n")
        await pilot.press("d")
        await until(pilot, lambda: isinstance(app.screen, Choice))
        assert f"baseline · {run.run_id}" in str(app.screen.query_one("#text", Static).content)


async def test_nothing_is_written_on_escape_or_while_it_is_wrong(run: RunDir) -> None:
    app = RunsApp(ListLister([summarise(run)]))
    async with app.run_test(size=SMALL) as pilot:
        await until(pilot, lambda: len(app.rows) == 1)
        dialog = await open_dialog(pilot)
        dialog.query_one("#note", TextArea).text = "x" * 10_001
        await pilot.pause()
        assert "at most 10,000" in str(dialog.query_one("#verdict", Static).content)
        assert dialog.query_one("#accept", Button).disabled
        await pilot.press("ctrl+s")
        assert app.screen is dialog
        dialog.query_one("#note", TextArea).text = "x"
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.runs_screen)
    assert not run.about.exists()


@pytest.mark.nightly
async def test_on_the_run_screen(run: RunDir) -> None:
    app = RunApp(h.running(), path=run.path)
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        header = app.run_screen.query_one(RunHeader)
        await open_dialog(pilot)
        await pilot.press(*"baseline", "enter")
        await until(pilot, lambda: f"baseline · {h.RUN_ID}" in str(header.render()))
        # By another process.
        change_about(run, Change(name="wider", tags=("sweep",)))
        await until(pilot, lambda: f"wider · {h.RUN_ID} · sweep" in str(header.render()))
        app.run_screen.action_stop()
        await until(pilot, lambda: isinstance(app.screen, Choice))
        assert f"wider · {h.RUN_ID}\n" in str(app.screen.query_one("#text", Static).content)


@pytest.mark.nightly
async def test_the_form_names_the_run(start: Start, launches: Launches) -> None:
    async with start(preset="quickstart") as pilot:
        await type_into(pilot, "name", "base line")
        assert screen(pilot).command == "tuiapp run quickstart --name 'base line'"
        screen(pilot)._load(None)
        assert field(pilot, "name").query_one(Input).value == "base line", "no preset has a name"
        await pilot.press("ctrl+r")
        await pilot.app.workers.wait_for_complete()
        assert launches.about == About(name="base line")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("key", "text", "problem"),
    [("name", "latest", "'latest' cannot be a name"), ("tags", f"lr {'x' * 33}", "is not a tag; it must be 1 to 32")],
)
async def test_the_form_refuses_a_name_or_tag_beside_its_field(
    start: Start, launches: Launches, key: str, text: str, problem: str
) -> None:
    async with start(preset="quickstart") as pilot:
        await type_into(pilot, key, text)
        assert problem in field(pilot, key).problem
        assert screen(pilot).command is None
        facts = screen(pilot).query_one(LaunchFacts)
        label = key.capitalize()
        assert f"see above: {label}" in str(facts.query_one("#facts", TextView).render())
        assert f"fix {label} first" in str(facts.query_one("#command", Static).content)
        await pilot.press("ctrl+r")
        await pilot.pause()
        assert launches.configs == []


@pytest.mark.nightly
def test_runs_left_behind_are_named(run: RunDir) -> None:
    change_about(run, Change(name="baseline"))
    named = f"baseline · {h.RUN_ID}"
    assert titled(run) == named
    assert farewell({run: named}, ()) == f"Run {named} continues. Watch it: tuiapp attach {h.RUN_ID}"
    assert farewell({run: named}, [run]).startswith(f"Run {named} is stopping.")
