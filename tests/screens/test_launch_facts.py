"""The facts below the form: of a line that is too long whole facts are left out."""

from __future__ import annotations

import pytest
from textual.content import Content

from tuiapp.widgets.launch_facts import _whole_facts

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
