"""Pictures as text: what is written can be read again, and says what is seen."""

from __future__ import annotations

from tests.kit.screen_text import Cell, Look, read, write

PLAIN = Look("#e0e0e0", "#121212")
LOUD = Look("#ff0000", "#121212", frozenset({"bold", "underline"}))
CHOSEN = Look("#ffffff", "#0178d4", frozenset({"bold"}))


def cells(text: str, look: Look) -> list[Cell]:
    return [Cell(character, look) for character in text]


def test_what_is_seen_comes_back() -> None:
    rows = [
        cells("ab ", PLAIN) + cells("c d", LOUD),
        cells("      ", CHOSEN),
        [Cell("漢", PLAIN), Cell("", PLAIN), *cells("e\u0301"[:1], PLAIN), *cells("   ", PLAIN)],
    ]
    back = read(write(rows))
    assert [[cell.text for cell in row] for row in back] == [[cell.text for cell in row] for row in rows]
    for row, original in zip(back, rows, strict=True):
        for cell, was in zip(row, original, strict=True):
            assert cell.look.background == was.look.background
            assert not was.shows_foreground or cell.look == was.look


def test_the_text_can_be_read() -> None:
    lines = write([cells("ab ", PLAIN) + cells("c", LOUD), *[cells("    ", CHOSEN)] * 2]).splitlines()
    assert lines[:4] == ["4x3", "ab c", "", ""]
    assert [line.split()[0] for line in lines[5:7]] == ["1", "2-3"]
    assert any(line.endswith("bold underline #ff0000 on #121212") for line in lines)


def test_spaces_go_with_what_stands_beside_them() -> None:
    spaced = write([cells("a", PLAIN) + cells(" ", Look("#000000", "#121212")) + cells("b", PLAIN)])
    assert spaced == write([cells("a b", PLAIN)])


def test_a_new_style_changes_no_other_line() -> None:
    before = write([cells("a", PLAIN), cells("b", CHOSEN)]).splitlines()
    after = write([cells("a", LOUD), cells("b", CHOSEN)]).splitlines()
    assert before[4] != after[4]
    assert before[5] == after[5]
