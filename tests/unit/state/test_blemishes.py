"""What mars a run that ends well: shown with its state everywhere, until it is accepted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.kit import histories as h
from tests.kit.recorded import record
from tuiapp.trainers.contract.events import Alert, Blemish, Event, Metrics, RunEnded
from tuiapp.trainers.contract.journal import JournalReader
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import Change, change_about
from tuiapp.trainers.state.blemishes import BlemishMeter
from tuiapp.trainers.state.condition import headline
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.summary import summarise
from tuiapp.verbs.narration import describe_end
from tuiapp.view.notification import ending
from tuiapp.view.run_list import choose, state

NAN = Blemish(kind="nan", since_step=6, text="NaN in the training loss from step 6 of 87 on")
RUN_ID = "20261120T101500-torch-ddp-net-3fb0"


def losses(*values: float | None, name: str = "loss", rank: int = 0, first: int = 1) -> Metrics:
    return Metrics(rank=rank, first_step=first, values={name: list(values)}, **h.at(first))


def told(*events: Event, steps: int = 87) -> list[Blemish]:
    meter = BlemishMeter()
    for event in events:
        meter.add(event)
    return meter.blemishes(steps, h.START + 100)


def test_a_loss_that_stays_nan() -> None:
    assert told(losses(2.3, 2.2, 2.1, 2.0, 1.9, *[None] * 82)) == [NAN]


def test_of_joined_steps_an_alert_says_which_is_the_first() -> None:
    joined = Metrics(rank=0, first_step=5, values={"loss": [2.0, None]}, counts=[2, 2], **h.at(5))
    alert = Alert(kind="nan", severity="error", step=7, text="rank 0: loss is nan at step 7")
    assert [one.since_step for one in told(joined, alert)] == [7]
    assert [one.since_step for one in told(joined)] == [8]
    # That of another metric says nothing of it.
    early = Alert(kind="nan", severity="error", step=3, text="rank 0: grad_norm is nan at step 3")
    assert [one.since_step for one in told(joined, early)] == [8]


def test_on_one_rank_alone() -> None:
    assert told(losses(1.0, 0.9), losses(1.0, None, rank=1), steps=2) == [
        Blemish(kind="nan", since_step=2, text="NaN in the training loss from step 2 of 2 on")
    ]


def test_a_loss_that_is_nan_now_and_then() -> None:
    found = told(losses(1.0, None, 0.8, None, 0.7), steps=5)
    assert [one.text for one in found] == ["NaN in the training loss at 2 steps of 5, the first 2"]


@pytest.mark.parametrize("name", ["val/loss", "return", "grad_norm", "test_loss"])
def test_another_metric_mars_nothing(name: str) -> None:
    assert told(losses(1.0, None, name=name)) == []


def test_rows_that_were_joined() -> None:
    event = Metrics(rank=0, first_step=1, values={"loss": [3.0, 2.0, 1.0]}, counts=[400, 1, 5], rows=[400, 1, 2])
    text = "402 rows of metrics were joined with neighbours"
    assert told(event) == [Blemish(kind="joined", since_step=1, text=text)]


def falling(count: int) -> list[float]:
    return [0.05 + 2.2 * math.exp(-step / 60) for step in range(count)]


@pytest.mark.parametrize(
    ("values", "since"),
    [
        (falling(400), None),
        ([*falling(300), *[3.0] * 100], 301),
        # A loss that grows, but not above where it began.
        ([*falling(300), *[1.5] * 100], None),
        # A single high value is no divergence.
        ([*falling(399), 50.0], None),
        ([2.3, 2.3, 9.0], None),
        # Of one that may be negative no multiple says anything.
        ([-step / 100 for step in range(300)], None),
    ],
)
def test_a_loss_that_diverges(values: Sequence[float], since: int | None) -> None:
    found = told(losses(*values))
    assert [(one.kind, one.since_step) for one in found] == ([("diverged", since)] if since else [])


def test_noise_of_few_batches_is_no_divergence() -> None:
    """Of a run that begins with trained weights, and of an attempt that goes on."""
    noisy = [0.01, *[0.008, 0.05, 0.03, 0.06, 0.02] * 5, 0.07]
    assert told(losses(*noisy)) == []
    first = BlemishMeter()
    first.add(losses(*falling(60)))
    resumed = BlemishMeter([], 60, first.starts)
    resumed.add(losses(*noisy, first=61))
    assert resumed.blemishes(87, 0.0) == []
    # What it goes up to is above where the first attempt began.
    resumed.add(losses(*[9.0] * 10, first=88))
    assert [(one.kind, one.since_step) for one in resumed.blemishes(97, 0.0)] == [("diverged", 87)]
    # As it would be of a run by itself.
    (found,) = told(losses(*noisy, *[9.0] * 10))
    assert (found.kind, found.since_step) == ("diverged", 27)


def test_the_median_of_a_long_run_is_of_all_of_it() -> None:
    meter = BlemishMeter()
    for first in range(1, 40_001, 100):
        meter.add(losses(*([0.1] * 100 if first < 39_900 else [9.0] * 100), first=first))
    meter.add(losses(8.0, first=40_001))
    assert meter.blemishes(40_001, 0.0) == []
    meter = BlemishMeter()
    for first in range(1, 40_001, 100):
        meter.add(losses(*([1.0] * 100 if first < 30_000 else [9.0] * 100), first=first))
    (found,) = meter.blemishes(40_000, 0.0)
    assert found.kind == "diverged"
    assert 30_000 < (found.since_step or 0) < 32_000


def test_what_was_not_saved() -> None:
    failed = [
        Alert(kind="checkpoint", severity="error", text=f"the checkpoint after step {step} was not saved: full")
        for step in (10, 20)
    ]
    export = Alert(kind="export", severity="error", text="the trained model was not exported: full")
    warning = Alert(kind="checkpoint", text="its newest checkpoint was damaged")
    found = told(warning, *failed, export)
    assert [one.text for one in found] == [
        "2 checkpoints were not saved, the first: the checkpoint after step 10 was not saved: full",
        "the trained model was not exported: full",
    ]


def test_a_hang_from_the_last_report_to_the_next() -> None:
    hang = Alert(kind="hang", severity="error", step=3, text="hangs", **h.at(40))
    over = Alert(kind="hang", severity="info", text="the run continues", ended=True, **h.at(57))
    before, after = losses(1.0, first=3), losses(0.9, first=60)
    assert told(before, hang, over, after) == [Blemish(kind="hang", since_step=3, text="no progress for 54s")]
    assert told(before, hang)[0].text == "no progress for 1m 37s"


def test_an_attempt_keeps_what_it_resumes_behind() -> None:
    early, late = (Blemish(kind=kind, since_step=step, text=kind) for kind, step in (("hang", 5), ("nan", 50)))
    meter = BlemishMeter([early, late, Blemish(kind="export", since_step=None, text="export")], 20)
    assert meter.blemishes(30, 0.0) == [early]
    script = BlemishMeter([early, late], None)
    assert script.blemishes(100, 0.0) == [early, late]


@pytest.fixture
def marred(tmp_path: Path) -> RunDir:
    *events, _ = h.completed()
    summary = h.summary(290, 17.5)
    summary.blemishes.append(NAN)
    return record(tmp_path, RUN_ID, [*events, RunEnded(status="completed", reason="", summary=summary, **h.at(18))])


def test_shown_the_same_everywhere(marred: RunDir) -> None:
    info, shown = summarise(marred), RunState()
    for event in JournalReader(marred.journal).rest():
        apply(shown, event)
    assert state(info) == "✓▲ completed"
    assert f"▲ {NAN.text}" in ending(info)
    assert describe_end(shown, marred).endswith(f"▲ {NAN.text}")
    told = headline(shown)
    assert told is not None
    assert (told.severity, f"▲ {NAN.text}" in told.text) == ("warning", True)
    assert choose([info], "blemish:nan") == choose([info], "blemish:any") == [info]
    assert choose([info], "blemish:hang") == []
    change_about(marred, Change(accepted=("nan",)))
    accepted = summarise(marred)
    assert (state(accepted), choose([accepted], "blemish:any")) == ("✓ completed", [])


def test_a_rate_at_which_the_second_step_explodes() -> None:
    (found,) = told(losses(2.3, *[4e6 / step + 60 for step in range(2, 88)]))
    assert (found.kind, found.since_step) == ("diverged", 2)
