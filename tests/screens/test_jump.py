"""The jump key: a letter at every target, which goes there."""

from __future__ import annotations

import pytest
from textual.geometry import Offset
from textual.widgets import Static

from tests.kit.configure_app import Start, field, screen
from tests.kit.run_app import until
from tuiapp.screens.jump import LETTERS, JumpScreen, labelled
from tuiapp.widgets.preset_list import PresetList


@pytest.mark.parametrize("count", [0, 1, 26, 27, 51, 52, 300, 676, 900])
def test_no_label_begins_another(count: int) -> None:
    labels, found = labelled([(Offset(0, n), print) for n in range(count)])
    assert len(labels) == len(set(labels)) == len(found) == min(count, 26 * 26)
    assert not any(other.startswith(label) for label in labels for other in labels if other != label)
    assert count > 60 or labels[:20] == [*LETTERS[: min(20, count)]], "what is at hand comes first"


def label_at(shown: JumpScreen, place: Offset) -> str:
    return next(str(one.content) for one in shown.query(Static) if one.region.offset == place)


async def test_from_the_presets_to_a_field_and_back(start: Start) -> None:
    async with start(preset="quickstart") as pilot:
        app = pilot.app
        await pilot.press("ctrl+t")
        await until(pilot, lambda: isinstance(app.screen, JumpScreen))
        assert isinstance(app.screen, JumpScreen)
        seed = field(pilot, "seed")
        control = next(one for one in seed.query("*") if one.focusable)
        await pilot.press(*label_at(app.screen, control.region.offset))
        await until(pilot, lambda: seed.has_focus_within)
        await pilot.press("ctrl+t")
        await until(pilot, lambda: isinstance(app.screen, JumpScreen))
        presets = screen(pilot).query_one(PresetList)
        assert isinstance(app.screen, JumpScreen)
        await pilot.press(*label_at(app.screen, presets.content_region.offset + Offset(0, 1)))
        await until(pilot, lambda: presets.has_focus and presets.cursor is not None)
        assert presets.cursor
        assert presets.cursor.name == "my-script"
        # What is no label takes them away, and does nothing else.
        await pilot.press("ctrl+t")
        await until(pilot, lambda: isinstance(app.screen, JumpScreen))
        await pilot.press("1")
        await until(pilot, lambda: app.screen is screen(pilot))
