"""The facts below the form: of a line that is too long whole facts are left out."""

from __future__ import annotations

import pytest
from textual.content import Content

from tests.kit.configure_app import Start, screen, until
from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.view.draft import Draft, command_line, examine, to_texts
from tuiapp.widgets.launch_facts import LaunchFacts, _training, _whole_facts
from tuiapp.widgets.text_view import TextView

LINE = "Memory    26 MiB per device · 6 GiB free   activations 17 MiB · data 5 MiB"


@pytest.mark.parametrize(
    ("room", "shown"),
    [
        (74, LINE),
        (73, "Memory    26 MiB per device · 6 GiB free   activations 17 MiB · …"),
        (60, "Memory    26 MiB per device · 6 GiB free"),
        (39, "Memory    26 MiB per device · …"),
        # Nothing whole has room: the style sheet cuts it.
        (20, LINE),
    ],
)
def test_whole_facts_are_left_out(room: int, shown: str) -> None:
    assert _whole_facts(Content(LINE), room).plain == shown


def test_a_rate_for_another_batch_is_said_with_what_it_comes_to() -> None:
    config = RunConfig(global_batch_size=64, learning_rate=0.1, learning_rate_for=256)
    training = str(_training(Draft(base=config, config=config)))
    assert "220 in all · learning rate 0.1 for 256 → 0.025 at 64 · 225,226 parameters" in training


def test_a_batch_of_each_device_takes_the_place_of_the_global_one(machine: Machine) -> None:
    base = RunConfig(global_batch_size=96, learning_rate=0.1, learning_rate_for=256)
    draft = examine({**to_texts(base), "per_device_batch_size": "32"}, base, machine)
    assert "global_batch_size" in draft.hidden
    assert draft.batch_words == "32 examples a step on each"
    assert "220 in all · learning rate 0.1 for 256 → 0.025 at 64" in str(_training(draft))
    assert command_line(draft, None, None) == "tuiapp run --set per_device_batch_size=32"
    wrong = examine({**to_texts(base), "per_device_batch_size": "1000"}, base, machine)
    assert wrong.problems == {"per_device_batch_size": "2,000 is more than the 1,437 training examples of digits."}


@pytest.mark.nightly
@pytest.mark.parametrize("size", [(64, 24), (120, 40)])
async def test_the_focused_button_opens_facts_that_are_left_out(start: Start, size: tuple[int, int]) -> None:
    async with start(size=size) as pilot:
        facts = screen(pilot).query_one("#facts", TextView)
        await until(pilot, lambda: "…" in str(facts.render()))
        lines, every = facts.size.height, screen(pilot).query_one(LaunchFacts)._facts
        screen(pilot).query_one("#launch").focus()
        await until(pilot, lambda: facts.size.height > lines)
        shown = " ".join(str(facts.render()).split())
        assert shown == " ".join(" ".join(map(str, every)).split())
        assert facts.region.bottom <= screen(pilot).size.height
        await pilot.press("shift+tab")
        await until(pilot, lambda: facts.size.height == lines)
