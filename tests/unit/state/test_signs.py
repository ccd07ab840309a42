"""How a state looks: whole where it fits, a shorter word where it does not, always with its sign."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from tuiapp.trainers.state.signs import SYMBOLS, Condition

TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30)


@given(TEXT, TEXT, st.sampled_from(sorted(SYMBOLS)), st.sampled_from(["", "✓"]), st.integers(0, 40))
@example("training", "train", "good", "", len("● training"))
@example("training", "train", "good", "", len("● training") - 1)
def test_a_condition_is_whole_exactly_where_there_is_room(
    text: str, word: str, severity: str, sign: str, room: int
) -> None:
    condition = Condition(text, severity, sign, word)  # type: ignore[arg-type]
    whole, shown = str(condition), condition.within(room)
    assert whole == f"{sign or SYMBOLS[severity]} {text}"  # type: ignore[index]
    assert shown == (whole if len(whole) <= room else f"{condition.symbol} {word}")
