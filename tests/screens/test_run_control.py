"""What can be asked of a run from its screen, with an injected feed."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import msgspec
import pytest
from textual.pilot import Pilot
from textual.widgets import Button, Static

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.recorded import CONFIG, record_checkpoint
from tests.kit.run_app import LARGE, SMALL, RunApp, settled, until
from tuiapp.screens.dialog import Choice
from tuiapp.screens.resume_dialog import ResumeDialog
from tuiapp.trainers.config.run_config import RunConfig, to_toml
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import AnyEvent, StopRequested
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.launch import Resumed
from tuiapp.widgets.chart_panel import ChartPanel
from tuiapp.widgets.log_view import LogView
from tuiapp.widgets.option_field import OptionField
from tuiapp.widgets.run_header import AlertStrip, RunHeader


def offered(app: RunApp) -> set[str]:
    """The keys in the footer."""
    bindings = app.run_screen.active_bindings.values()
    return {active.binding.key for active in bindings if active.enabled and active.binding.show}


def said(app: RunApp) -> str:
    return "\n".join(note.message for note in app._notifications)


async def told(pilot: Pilot[None], run: RunDir) -> list[str]:
    """What comes into the mailbox next."""
    commands: list[str] = []

    def came() -> bool:
        commands.extend(sidecars.take_commands(run.commands))
        return bool(commands)

    await until(pilot, came)
    return commands


async def asked(pilot: Pilot[None]) -> None:
    await until(pilot, lambda: isinstance(pilot.app.screen, Choice | ResumeDialog))
    await pilot.pause()


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """Has what a resume asks for."""
    (tmp_path / "run.toml").write_text(to_toml(CONFIG))
    return tmp_path


async def test_stop_asks_and_writes_into_the_mailbox(tmp_path: Path) -> None:
    app = RunApp(h.running(), path=tmp_path)
    app.run_dir.commands.mkdir()
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.screen, Choice))
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.run_screen)
        assert sidecars.take_commands(app.run_dir.commands) == []
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.screen, Choice))
        await pilot.click("#stop")
        await until(pilot, lambda: app.screen is app.run_screen)
        assert await told(pilot, app.run_dir) == ["stop"]
        app.feed.events = [StopRequested(by="command", **h.at(9))]
        await until(pilot, lambda: app.run_screen.state.stop_requested is not None)
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.screen, Choice))
        await pilot.click("#stop-now")
        await until(pilot, lambda: app.screen is app.run_screen)
        assert await told(pilot, app.run_dir) == ["stop-now"]


async def test_a_mailbox_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    app = RunApp(h.running(), path=tmp_path / "gone")
    async with app.run_test(size=LARGE, notifications=True) as pilot:
        await settled(pilot, app)
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.screen, Choice))
        await pilot.click("#stop")
        await until(pilot, lambda: any("Cannot send the command to" in note.message for note in app._notifications))


async def test_a_run_that_has_ended_before_the_answer_is_told_nothing(tmp_path: Path) -> None:
    app = RunApp(h.running(), path=tmp_path)
    app.run_dir.commands.mkdir()
    async with app.run_test(size=LARGE, notifications=True) as pilot:
        await settled(pilot, app)
        await pilot.press("s")
        await asked(pilot)
        app.feed.events += [h.ended("completed", 17.5, reason="290 of 290 steps")]
        await until(pilot, lambda: bool(app.screen.query("#ok")))
        assert app.screen.query_one("#dialog").border_title == "This run has ended"
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is app.run_screen)
        assert sidecars.take_commands(app.run_dir.commands) == []


REFUSED = {
    "live": {
        "u": "It cannot be resumed: it has not ended.",
        "c": "The run has not ended. To compare it meanwhile: g, then x and c.",
        "space": "Only a replay is steered. To replay a run: g, then p.",
        "minus": "All of it is in sight. + zooms in.",
        "left": "All of it is in sight. + zooms in, v reads values.",
        "A": "There is no alert.",
        "7": "No predictions were reported.",
        "9": "No picture or text was reported.",
    },
    "ended": {
        "s": "The run has ended: there is nothing to stop.",
        "S": "The run has ended: there is nothing to save.",
        "u": "It cannot be resumed: there is no usable checkpoint.",
    },
}


@pytest.mark.nightly
@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("state", REFUSED)
async def test_a_key_that_cannot_be_used_says_why(state: str, size: tuple[int, int]) -> None:
    app = RunApp(h.running() if state == "live" else h.completed())
    async with app.run_test(size=size, notifications=True) as pilot:
        await settled(pilot, app)
        await until(pilot, lambda: ("s" in app.run_screen.active_bindings) == (state == "live"))
        for key, why in REFUSED[state].items():
            await pilot.press(key)
            await until(pilot, lambda why=why: why in said(app).splitlines())  # type: ignore[misc]
        assert app.screen is app.run_screen
        # Where a text is typed they are characters.
        app.clear_notifications()
        await pilot.press("slash", "s", "u")
        await until(pilot, lambda: app.run_screen.query_one(LogView).pattern == "su")
        assert said(app) == ""


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_a_checkpoint_now(tmp_path: Path, size: tuple[int, int]) -> None:
    app = RunApp(h.running(), path=tmp_path)
    app.run_dir.commands.mkdir()
    async with app.run_test(size=size, notifications=True) as pilot:
        await settled(pilot, app)
        assert {"S", "s"} <= offered(app)
        assert "u" not in offered(app)
        await pilot.press("S")
        assert await told(pilot, app.run_dir) == ["checkpoint"]
        # It is said after the file is there.
        await until(pilot, lambda: "Requested a checkpoint" in said(app))
        app.feed.events = [h.checkpoint(130, 9, best=True)]
        chart = app.run_screen.query_one(ChartPanel)
        await until(pilot, lambda: chart.border_subtitle == "checkpoint: step 130 · best so far")
        assert app.run_screen.state.log[-1].text == "checkpoint step-00000130 · 2.70 MiB · 31.0 ms · best so far"


@pytest.mark.by_hand
@pytest.mark.parametrize("before", ["stopped", "failed", "lost"])
async def test_a_run_that_is_over_goes_on_in_the_same_screen(run_dir: Path, before: str) -> None:
    begun = Event()
    resumed: list[RunDir] = []

    def resumer(run: RunDir, config: RunConfig | None) -> Resumed:
        resumed.append(run)
        assert config is None
        assert begun.wait(60)
        return Resumed(2, 72, ["step-00000080 is damaged; resuming from step-00000072"], 0)

    events: list[AnyEvent] = interrupted.stopped()[:-1]
    events += {"stopped": interrupted.stopped()[-1:], "failed": interrupted.failed()[-3:], "lost": []}[before]
    app = RunApp(events, path=run_dir, now=62.0, resumer=resumer)
    async with app.run_test(size=LARGE, notifications=True) as pilot:
        await settled(pilot, app)
        app.feed.lost = before == "lost"
        await until(pilot, lambda: app.run_screen.state.status == before and "u" in offered(app))
        assert "S" not in offered(app)
        await pilot.pause()
        assert "u: resume from step 72" in str(app.run_screen.query_one(AlertStrip).render())
        await pilot.press("u")
        await asked(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: resumed == [app.run_dir])
        # Once is enough.
        assert "u" not in offered(app)
        app.feed.lost = False
        app.feed.events = interrupted.resumed()
        begun.set()
        await until(pilot, lambda: app.run_screen.state.step == 82 and "is damaged" in said(app))
        await settled(pilot, app)
        assert "S" in offered(app)
        assert app.run_screen.query_one(AlertStrip).display is False
        assert "RUNNING training" in str(app.run_screen.query_one(RunHeader).render())
        assert "step  82/290" in str(app.run_screen.query_one(RunHeader).render())
        app.feed.events = [StopRequested(by="command", save=True, **h.at(63)), h.ended("stopped", 64)]
        await until(pilot, lambda: "STOPPED" in str(app.run_screen.query_one(RunHeader).render()))


@pytest.mark.nightly
@pytest.mark.parametrize("saved", [True, False])
async def test_a_run_lost_before_its_journal_held_a_checkpoint(run_dir: Path, saved: bool) -> None:
    """What lies on the disk decides."""
    app = RunApp(h.running(last_step=20), path=run_dir)
    if saved:
        for step in (58, 29):
            record_checkpoint(app.run_dir, step)
    app.feed.lost = True
    async with app.run_test(size=LARGE, notifications=True) as pilot:
        await settled(pilot, app)
        await until(pilot, lambda: "u" in offered(app))
        await pilot.press("u")
        if saved:
            await asked(pilot)
            words = " ".join(str(each.render()) for each in app.screen.query(Static))
            assert "from step 29 to 290" in words
        else:
            await until(pilot, lambda: "It cannot be resumed: there is no usable checkpoint." in said(app))


@pytest.mark.nightly
@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_a_completed_run_is_trained_further_with_other_keys(run_dir: Path, size: tuple[int, int]) -> None:
    wanted: list[RunConfig | None] = []

    def resumer(run: RunDir, config: RunConfig | None) -> Resumed:
        wanted.append(config)
        return Resumed(2, 290, [], 0)

    app = RunApp([*h.completed()[:-1], h.checkpoint(290, 17), h.completed()[-1]], path=run_dir, resumer=resumer)
    async with app.run_test(size=size, notifications=True) as pilot:
        await settled(pilot, app)
        await until(pilot, lambda: "u" in offered(app))
        await pilot.press("u")
        await asked(pilot)
        dialog = app.screen
        fields = {field.option.key: field for field in dialog.query(OptionField)}
        assert not fields.keys() & {"backend", "model", "optimizer", "seed", "global_batch_size"}
        assert (fields["epochs"].text, fields["epochs"].changed) == ("20", True)
        verdict, accept = dialog.query_one("#verdict", Static), dialog.query_one("#accept", Button)
        assert str(verdict.content) == "It goes on from step 290 to 580"
        assert accept.region.bottom <= size[1]
        # It is selected: what is typed replaces it.
        await pilot.press("8", "enter")
        assert str(verdict.content) == "✗ It cannot be resumed: it has made all its 232 steps. Enter more epochs."
        assert (app.screen, accept.disabled) == (dialog, True)
        await pilot.press("backspace", "1", "1", "down", "down", *"0.5", "enter")
        await until(pilot, lambda: len(wanted) == 1)
    assert wanted == [msgspec.structs.replace(CONFIG, epochs=11, learning_rate=0.5)]
