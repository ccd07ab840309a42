"""Fields that are rare, and fields that are looked for."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot
from textual.widgets import OptionList

from tests.kit.configure_app import Start, field, screen, type_into, until
from tuiapp.library.presets import save_preset
from tuiapp.screens.pickers import FieldList
from tuiapp.trainers.config.run_config import OPTIONS, RunConfig
from tuiapp.widgets.choice_input import ChoiceInput
from tuiapp.widgets.config_form import FoldLine
from tuiapp.widgets.option_field import LABEL_CELLS, OptionField


def test_labels_fit_their_column() -> None:
    mark, gap = 2, 1
    assert [one.label for one in OPTIONS.values() if mark + len(one.label) + gap > LABEL_CELLS] == []


async def look_for(pilot: Pilot[None], text: str) -> None:
    await pilot.press("slash")
    await until(pilot, lambda: isinstance(pilot.app.screen, FieldList) and bool(pilot.app.screen.query("#search")))
    await pilot.press(*text)
    await until(pilot, lambda: pilot.app.screen.query_one("#search").value == text)  # type: ignore[attr-defined]
    await pilot.pause()


@pytest.mark.nightly
async def test_rare_fields_fold_while_they_have_their_defaults(start: Start) -> None:
    async with start() as pilot:
        fold = screen(pilot).query_one(FoldLine)
        rare = [one for one in screen(pilot).query(OptionField) if one.option.is_rare]
        assert not any(one.display for one in rare)
        fold.focus()
        await pilot.press("enter")
        await until(pilot, lambda: field(pilot, "keep_checkpoints").display)
        assert not field(pilot, "nesterov").display
        await type_into(pilot, "keep_checkpoints", "5")
        fold.focus()
        await pilot.press("space")
        await until(pilot, lambda: [one.option.key for one in rare if one.display] == ["keep_checkpoints"])
        assert OPTIONS["gradient_clip"].label in str(fold.content)
        assert OPTIONS["keep_checkpoints"].label not in str(fold.content)


@pytest.mark.nightly
async def test_what_a_preset_sets_is_never_folded(start: Start) -> None:
    save_preset("mine", RunConfig(nan_policy="stop", best="loss"))
    async with start(preset="mine") as pilot:
        rare = [one for one in screen(pilot).query(OptionField) if one.option.is_rare]
        assert {one.option.key for one in rare if one.display} == {"nan_policy", "best"}
        # Nor is what was put back to its default.
        await type_into(pilot, "best", "accuracy")
        await pilot.press("ctrl+l")
        await until(pilot, lambda: field(pilot, "best").changed)
        assert field(pilot, "best").display


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("text", "key"), [("lr", "learning_rate"), ("ate ev", "eval_every"), ("clip", "gradient_clip"), ("gpus", "devices")]
)
async def test_a_field_is_found_by_any_part_of_its_names_and_shown(start: Start, text: str, key: str) -> None:
    async with start() as pilot:
        await look_for(pilot, text)
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.screen is screen(pilot) and field(pilot, key).has_focus_within)


@pytest.mark.nightly
async def test_a_field_that_does_not_apply_says_with_what_it_does_and_leads_there(start: Start) -> None:
    async with start() as pilot:
        await look_for(pilot, "nesterov")
        found = pilot.app.screen.query_one(OptionList).get_option("nesterov")
        assert "with optimizer sgd" in str(found.prompt)
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.screen is screen(pilot))
        await until(pilot, lambda: field(pilot, "optimizer").has_focus_within)


@pytest.mark.nightly
async def test_what_is_typed_on_a_choice_leads_to_its_value(start: Start) -> None:
    async with start() as pilot:
        choice = field(pilot, "backend").query_one(ChoiceInput)
        choice.focus()
        await until(pilot, lambda: choice.has_focus)
        await pilot.press(*"jax-")
        menu = choice.query_one(OptionList)
        assert menu.highlighted == choice.choices.index("jax-sharding")
        await pilot.press(*"scr")
        assert menu.highlighted == choice.choices.index("script")
        await pilot.press("enter")
        await until(pilot, lambda: field(pilot, "backend").text == "script" and choice.has_focus)
        # The last of many is scrolled to, also when its letter opens the menu.
        await pilot.press("s")
        opened = choice.query_one(OptionList)
        await until(pilot, lambda: opened.max_scroll_y > 0 and opened.scroll_offset.y == opened.max_scroll_y)
        await pilot.press("escape")
        # Anew with the next menu; what nothing begins with changes nothing.
        await pilot.press(*"torch")
        assert choice.query_one(OptionList).highlighted == choice.choices.index("torch-ddp")
        await pilot.press(*"keras-j")
        assert choice.query_one(OptionList).highlighted == choice.choices.index("keras-jax")
        await pilot.press("q", "escape")
        await until(pilot, lambda: choice.has_focus)
        assert field(pilot, "backend").text == "script"
