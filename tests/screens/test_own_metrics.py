"""The Run screen of a run that reports what it likes: no totals, no step times, no loss."""

from __future__ import annotations

import msgspec
import pytest
from textual.pilot import Pilot

from tests.kit import histories as h
from tests.kit import own_metrics as own
from tests.kit.run_app import LARGE, SMALL, RunApp, settled, until
from tests.screens.test_run_charts import drawn, listed
from tuiapp.screens.pickers import MetricList
from tuiapp.screens.run_panels import EpochsPanel
from tuiapp.trainers.contract.events import AnyEvent, Facts, Metrics
from tuiapp.trainers.state.known_metrics import first_choice, metric, of_interest, second_choice
from tuiapp.widgets.chart_panel import ChartPanel
from tuiapp.widgets.run_header import RunHeader
from tuiapp.widgets.text_view import TextView


def header(app: RunApp) -> str:
    return str(app.run_screen.query_one(RunHeader).render())


NAMES = ("loss", "val/loss", "accuracy", "entropy", "train/ppl", "tokens_per_second", "lr", "grad_norm")


async def test_the_metrics_have_the_room_that_one_rank_does_not_need() -> None:
    script = {"backend": "script", "script": "train.py", "platform": "cpu"}
    app = RunApp([*own.running(names=NAMES, last_step=18, config=script), h.host_sample(10.0)], now=11.0)
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        screen = app.run_screen
        await until(pilot, lambda: sum(panel.display for panel in screen.charts.panels) == 6)
        latest = "\n".join(map(str, screen.query_one("#latest", TextView)._lines))
        assert all(metric(name).format(own.value_of(name, 18)) in latest for name in NAMES)
        assert not screen.query_one("#ranks").region.area
        assert screen.query_one("#devices").region.height == 2
        assert screen.query_one("#log").region.height == 4
        await pilot.press("3")
        await until(pilot, lambda: screen.query_one("#ranks").region.height > 20)


async def chart_of(pilot: Pilot[None], app: RunApp) -> ChartPanel:
    one = await drawn(pilot, app)
    await until(pilot, lambda: not one.has_class("-empty"))
    return one


@pytest.mark.nightly
async def test_the_chart_starts_on_a_metric_that_there_is_until_the_user_chooses() -> None:
    app = RunApp(own.running(names=("lr", "train/ppl", "reward")))
    async with app.run_test(size=(200, 60)) as pilot:
        one = await chart_of(pilot, app)
        assert one.options.metric == "train/ppl"
        assert str(one.border_title) == "1 train/ppl"
        assert app.run_screen.query_one("#chart-2", ChartPanel).options.metric == "eval/f1"
        await pilot.press("m")
        await until(pilot, lambda: isinstance(app.screen, MetricList))
        assert "loss" not in listed(app)
        await pilot.press("escape")
        app.feed.events = [own.logged(121, ["loss"])]
        await until(pilot, lambda: one.options.metric == "loss")
        await pilot.press("m", "end", "enter")
        await until(pilot, lambda: app.screen is app.run_screen and one.options.metric == "train/ppl")
        app.feed.events = [own.logged(122, ["loss", "more"])]
        await settled(pilot, app)
        assert one.options.metric == "train/ppl"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("names", "first", "second"),
    [
        ((), "loss", "test/accuracy"),
        (("lr", "acc", "loss"), "loss", "acc"),
        (("lr", "acc", "eval/loss", "train/loss"), "train/loss", "eval/loss"),
        (("lr", "step_time"), "lr", "test/accuracy"),
        (("reward", "test/accuracy"), "reward", "test/accuracy"),
    ],
)
def test_what_is_shown_first(names: tuple[str, ...], first: str, second: str) -> None:
    assert (first_choice(names), second_choice(names, first)) == (first, second)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("names", "wanted", "charts"),
    [
        (("loss", "eval_loss", "lr"), ["eval_loss"], ["loss", "lr"]),
        (("train/loss", "val/loss", "train/f1", "val/f1"), ["val/f1"], ["train/loss", "train/f1"]),
        (("loss", "reward", "test/accuracy", "kl"), [], ["loss", "test/accuracy", "kl", "reward"]),
        (("loss", "lr", "step_time", "weight_decay"), ["lr"], ["loss", "lr", "step_time"]),
        (("loss", "eval/loss", "eval/runtime", "eval/steps_per_second", "epoch", "lr"), ["eval/loss"], ["loss", "lr"]),
    ],
)
def test_what_charts_are_of(names: tuple[str, ...], wanted: list[str], charts: list[str]) -> None:
    assert of_interest(names, names[0], wanted, {"weight_decay"}) == charts


@pytest.mark.nightly
@pytest.mark.parametrize("size", [LARGE, SMALL])
async def test_a_script_that_reports_its_epoch_has_epochs(size: tuple[int, int]) -> None:
    def reported(event: AnyEvent) -> AnyEvent:
        if not isinstance(event, Metrics):
            return event
        return msgspec.structs.replace(event, values={**event.values, "epoch": [event.last_step / 40]})

    events = [reported(event) for event in own.running()]
    app = RunApp([*events, Facts(total_steps=160, **h.at(62.0))], now=62.5)
    async with app.run_test(size=size) as pilot:
        await settled(pilot, app)
        await until(pilot, lambda: "epoch 3/4 · step 120/160" in header(app))
        await pilot.press("8")
        epochs = app.run_screen.query_one(EpochsPanel)
        shown = epochs.query_one(TextView)
        await until(pilot, lambda: "eval/loss" in str(shown.render()))
        heading, *rows = str(shown.render()).splitlines()
        assert heading.split() == ["epoch", "steps", "loss", "seconds", "eval/loss"]
        assert [row.split()[:2] for row in rows] == [["3", "40"], ["2", "40"], ["1", "40"]]
