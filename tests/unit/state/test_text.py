from __future__ import annotations

import math
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuiapp.trainers.state import text


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [
        ("plain", "plain"),
        ("a\tb", "a    b"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]52;c;aGVsbG8=\x07copied", "copied"),
        ("\x1b]0;title\x1b\\after", "after"),
        ("\x1bP1$r q\x1b\\x", "x"),
        ("\x9b31mc1", "c1"),
        ("\x9d0;t\x9cy", "y"),
        ("\x1b]never closed", ""),
        ("\x1b", ""),
        ("\x1b[", ""),
        ("a\x1b(Bb", "ab"),
        ("bell\x07 null\x00 del\x7f", "bell null del"),
        ("abc\u202egnp.exe\u202c", "abcgnp.exe"),
        ("\u2066x\u2069\u200b\ufeff\u061c", "x"),
        ("lone \ud89b surrogate", "lone  surrogate"),
        ("Andr\udce9", r"Andr\xe9"),
        ("two\nlines\u2028three", "two lines three"),
        (" 10%|#  |\r 50%|## |\r100%|###|", "100%|###|"),
        ("progress\r", "progress"),
        ("\r\r", ""),
        ("[@click=app.exit]x[/]", "[@click=app.exit]x[/]"),
        ("日本 é", "日本 é"),
        # Some terminals give a sign two cells where it is asked for as a picture, others one.
        ("GLHF! 🏖\ufe0f", "GLHF! 🏖"),
    ],
)
def test_sanitize(hostile: str, harmless: str) -> None:
    assert text.sanitize(hostile) == harmless


HOSTILE = st.text(
    st.characters(exclude_categories=["Cn"]) | st.sampled_from("\x1b\x9b\x9d[]P;m\\\x07\r\n\t\u202e\ufe0f\udc9b"),
    max_size=80,
)


@given(HOSTILE, st.integers(1, 60))
def test_nothing_that_is_sanitized_affects_a_terminal(hostile: str, limit: int) -> None:
    harmless = text.sanitize(hostile, limit)
    assert len(harmless) <= limit
    assert not {unicodedata.category(character) for character in harmless} & {"Cc", "Cs", "Zl", "Zp"}
    assert not set(harmless) & set("\u200b\u200e\u202a\u202e\u2066\ufe0f\ufeff\U000e0041")
    assert text.sanitize(harmless, limit) == harmless
    if hostile.isascii() and hostile.isprintable() and len(hostile) <= limit:
        assert harmless == hostile


@given(st.lists(HOSTILE).map("\n".join), st.integers(3, 20))
def test_many_lines_are_as_many_harmless_ones(hostile: str, limit: int) -> None:
    lines = text.sanitize_lines(hostile, limit)
    assert len(lines) <= limit
    assert all(text.sanitize(line) == line for line in lines)


def test_sanitize_is_bounded_and_quick() -> None:
    assert text.sanitize("x" * 10_000, 50) == "x" * 49 + "…"
    # Must not take time that grows with the square of the length.
    text.sanitize("\x1b]" * 500_000)
    text.sanitize("\x1b[" * 500_000)
    text.sanitize("\r" * 500_000)


def test_sanitize_lines_keeps_both_ends() -> None:
    lines = text.sanitize_lines("\n".join(str(n) for n in range(1000)), limit=11)
    assert len(lines) == 11
    assert lines[0] == "0"
    assert lines[-1] == "999"
    assert lines[5] == "… 990 lines omitted …"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "–"),
        (math.inf, "–"),
        (-3, "0s"),
        (4.9, "4s"),
        (63, "1m 03s"),
        (7500, "2h 05m"),
        (3 * 86400 + 4 * 3600, "3d 04h"),
    ],
)
def test_durations(seconds: float | None, shown: str) -> None:
    assert text.format_duration(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(None, "–"), (0, "0 B"), (512, "512 B"), (401_408, "392 KiB"), (31.2 * 2**30, "31.2 GiB"), (2**40, "1.00 TiB")],
)
def test_bytes(count: float | None, shown: str) -> None:
    assert text.format_bytes(count) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (math.nan, "NaN"),
        (-math.inf, "−inf"),
        (0, "0.0000"),
        (0.41234, "0.4123"),
        (2.3456, "2.346"),
        (1.5e-6, "1.5e-06"),
        (123456, "1.2e+05"),
    ],
)
def test_metrics_are_at_most_seven_wide(value: float | None, shown: str) -> None:
    assert text.format_metric(value) == shown
    assert len(shown) <= 7


def test_ranges_of_numbers() -> None:
    assert text.format_ranges([7]) == "7"
    assert text.format_ranges([*range(32), 33, 35, 36]) == "0–31, 33, 35–36"
    assert text.format_ranges(range(0, 30, 2)) == "0, 2, 4, 6, 8, 10, 12, 14 and 7 more"


def test_bars_have_their_width() -> None:
    assert text.bar(0.5, 4) == "██  "
    assert text.bar(None, 3) == "   "
    assert text.bar(7.0, 3) == "███"
    assert len(text.bar(0.33, 10)) == 10
    assert text.sparkline([0.0, 50.0, None, 100.0], 6, 100.0) == "  ▁▅ █"


@pytest.mark.parametrize(
    ("value", "short"),
    [
        ("net", "net"),
        ("py:/home/me/net.py:Net", "net.py:Net"),
        ("py:net.py:Net", "net.py:Net"),
        ("npz:/data/a:b.npz", "npz:a:b.npz"),
        ("npz:mine.npz", "npz:mine.npz"),
    ],
)
def test_a_value_without_directories(value: str, short: str) -> None:
    assert text.without_directories(value) == short
