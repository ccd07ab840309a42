"""The fold over journals that lack steps, and over runs that were lost with checkpoints that no journal covers."""

from __future__ import annotations

import pytest

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.folding import fold
from tuiapp.trainers.contract.events import Alert, AnyEvent
from tuiapp.trainers.state.condition import headline
from tuiapp.trainers.state.curves import Curves
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState

GAP: list[AnyEvent] = [*h.running(last_step=60), *interrupted.resumed(step=87)]
"""Steps 61 to 87 were made by ranks that nobody heard of."""


def said(state: RunState) -> tuple[str, str]:
    found = headline(state)
    assert found is not None
    return found.text, found.severity


def test_a_gap_is_said_first() -> None:
    state = fold(GAP)
    words = "steps 61 to 87 missing from the journal, with their evaluations and checkpoints"
    assert said(state) == (words, "warning")
    apply(state, Alert(kind="gpu-lost", severity="error", text="a GPU is lost", **h.at(70)))
    assert said(state) == ("a GPU is lost · steps 61 to 87 missing", "error")


def test_a_gap_is_said_of_a_run_that_is_over() -> None:
    text, severity = said(fold([*GAP, h.ended("completed", 70)]))
    assert text.startswith("completed: ")
    assert text.endswith(" · steps 61 to 87 missing")
    assert severity == "warning"


def test_a_gap_is_gone_once_a_later_attempt_makes_the_steps() -> None:
    state = fold([*GAP, h.started(attempt=3, resumed_from=58, seconds=80)])
    assert (headline(state), state.gaps.spans) == (None, [])


def test_comparing_knows_it_too() -> None:
    curves = Curves(by_rank=False)
    curves.fold(GAP)
    assert curves.gaps.short == "steps 61 to 87 missing"


@pytest.mark.parametrize(
    ("events", "step"),
    [
        (h.running(last_step=60), None),
        ([*h.running(last_step=60), h.checkpoint(58, 6)], 58),
        ([*h.running(last_step=60), h.checkpoint(58, 6), h.steps(0, 61, 90, 7), h.checkpoint(87, 7)], 58),
        (GAP, 87),
        ([*GAP, h.checkpoint(97, 70)], 97),
    ],
)
def test_a_lost_run_resumes_from_what_its_journal_covers(events: list[AnyEvent], step: int | None) -> None:
    state = fold(events)
    state.mark_lost()
    assert (state.resume_step, state.can_resume) == (step, True)
    assert ("u: resume if a checkpoint was saved" if step is None else f"u: resume from step {step}") in said(state)[0]


@pytest.mark.parametrize("status", ["lost", "failed", "stopped"])
def test_after_the_last_step_a_run_can_be_resumed_for_its_end_alone(status: str) -> None:
    events = [*h.running(last_step=290), h.checkpoint(290, 17)]
    if status != "lost":
        events.append(h.ended(status, 18, rank=0 if status == "failed" else None))  # type: ignore[arg-type]
    state = fold(events)
    if status == "lost":
        state.mark_lost()
    assert state.can_resume == (status != "stopped")


def test_a_checkpoint_whose_steps_were_lost_is_not_resumed_from() -> None:
    events = [h.started(1), h.steps(0, 1, 29, 2.0), h.checkpoint(29, 2.1), h.evaluation(2, 3.0), h.checkpoint(58, 3.1)]
    state = fold(events)
    state.mark_lost()
    assert (state.step, state.resume_step) == (29, 29)
