"""Which steps a journal lacks, and what is shown of such runs."""

from __future__ import annotations

import pytest

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.folding import fold
from tuiapp.trainers.contract.events import Alert, AnyEvent, Metrics
from tuiapp.trainers.state.condition import headline
from tuiapp.trainers.state.curves import Curves
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.history import Gaps, gaps_in
from tuiapp.trainers.state.run_state import RunState


def gaps(*events: AnyEvent) -> Gaps:
    return gaps_in(events)


def both(first: int, last: int) -> list[AnyEvent]:
    return [h.steps(rank, first, last, 1.0) for rank in (0, 1)]


def again(number: int, step: int, world_size: int = 2) -> AnyEvent:
    return h.started(world_size, attempt=number, resumed_from=step)


BEGUN = [h.started(), *both(1, 240)]
CASES: dict[str, tuple[list[AnyEvent], list[tuple[int, int]]]] = {
    "none": (BEGUN, []),
    "steps taken anew": ([*BEGUN, again(2, 232), *both(233, 300)], []),
    "resumed beyond what is on record": ([*BEGUN, again(2, 319), *both(320, 348)], [(241, 319)]),
    "one rank is further": ([*BEGUN, h.steps(1, 241, 250, 1), again(2, 319)], [(241, 319)]),
    "nothing was on record": ([h.started(), again(2, 29)], [(1, 29)]),
    "the gap is behind the step of a later attempt": ([*BEGUN, again(2, 319), again(3, 232)], []),
    "a later attempt goes back into the gap": ([*BEGUN, again(2, 319), again(3, 290)], [(241, 290)]),
    "two": ([*BEGUN, again(2, 319), *both(320, 330), again(3, 348)], [(241, 319), (331, 348)]),
    "within an attempt": ([*BEGUN, *both(251, 260)], [(241, 250)]),
    "of one rank": ([*BEGUN, h.steps(1, 246, 250, 1), h.steps(0, 241, 250, 1)], [(241, 245)]),
    "fewer ranks": ([*BEGUN, again(2, 232, 1), h.steps(0, 233, 260, 1)], []),
    "more ranks": ([*BEGUN, again(2, 232, 4), *[h.steps(rank, 233, 260, 1) for rank in range(4)]], []),
    "a later attempt alone": ([again(3, 58), *both(59, 60)], []),
    "no beginning": ([*both(59, 60)], []),
    "more ranks than there can be": ([h.started(10**12), again(2, 29, 10**12)], [(1, 29)]),
}


@pytest.mark.parametrize("name", CASES)
def test_gaps(name: str) -> None:
    events, wanted = CASES[name]
    assert gaps(*events).spans == wanted


def test_in_words() -> None:
    assert gaps(*BEGUN).words == gaps(*BEGUN).short == ""
    beyond = [*BEGUN, again(2, 1319)]
    found = gaps(*beyond)
    assert found.short == "steps 241 to 1,319 missing"
    assert found.words == "steps 241 to 1,319 missing from the journal, with their evaluations and checkpoints"
    found = gaps(*beyond, *(event for step in range(1400, 1800, 100) for event in both(step, step)))
    assert found.short == "steps 241 to 1,399, 1,401 to 1,499, 1,501 to 1,599 and 1 more missing"


def test_a_script_that_resumes_by_itself_lacks_only_what_it_had_reported() -> None:
    again = h.started(1, attempt=2, resumed_from=None)
    assert gaps(h.started(1), h.steps(0, 1, 60, 2), again, h.steps(0, 41, 90, 9)).spans == []
    assert gaps(h.started(1), h.steps(0, 1, 30, 2), again, h.steps(0, 41, 90, 9)).spans == [(31, 40)]
    without = [Metrics(rank=0, first_step=first, values={"loss": [1.0]}) for first in (60, 41)]
    assert gaps(h.started(1), without[0], again, without[1]).spans == []


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
