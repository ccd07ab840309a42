"""Which steps a journal lacks."""

from __future__ import annotations

import pytest

from tests.kit import histories as h
from tuiapp.trainers.contract.events import AnyEvent, Metrics
from tuiapp.trainers.state.history import Gaps, gaps_in


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
