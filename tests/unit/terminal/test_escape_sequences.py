"""What of a terminal's input Textual gets to see, however the input is cut into pieces."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuiapp.terminal.escape_sequences import LONGEST, EscapeSequences

PIECES = [
    *(bytes([byte]) for byte in b"\x1b\x1b[]P\\Mm a\t\x07\x11\xff"),
    *(b"1;", b"200~", b"201~", b"\x1b[200~", b"\x1b[201~", b"\x1b[A", b"\x1b]11;rgb:0/0/0", b"\xc3\xa4", b"1;" * 20),
]


def passed(data: bytes, cuts: Iterable[int] = ()) -> bytes:
    """What is passed on of input that comes in pieces."""
    sequences = EscapeSequences()
    return b"".join(sequences.feed(data[a:b]) for a, b in pairwise([0, *sorted(cuts), len(data)])) + sequences.rest()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a\x1b[1;5Ab\xc3\xa4", b"a\x1b[1;5Ab\xc3\xa4"),
        (b"\x1b[<0;30;4M\x1bOP\x1b[[A\x1b[3$\x1b[?2026;2$y", b"\x1b[<0;30;4M\x1bOP\x1b[[A\x1b[3$\x1b[?2026;2$y"),
        (b"\x1b[" + b"1" * (LONGEST - 3) + b"u", b"\x1b[" + b"1" * (LONGEST - 3) + b"u"),
        (b"a\x1b[" + b"1" * (LONGEST - 2) + b"ub", b"ab"),
        (b"a\x1b[" + b"1;" * 10_000 + b"mb", b"ab"),
        (b"\x1b[" + b"1;" * 10_000 + b"\x11", b"\x11"),
        (b"a\x1b]11;rgb:0000/0000/0000\x1b\\b\x1b]10;rgb:ffff/ffff/ffff\x07c", b"abc"),
        (b"a\x1bP>|XTerm(390)\x1b\\b\x1b_Gi=31;OK\x1b\\c", b"abc"),
        (b"a\x1b]52;c;" + b"q" * 50_000, b"a"),
        (b"a\x1b]52;c;" + b"q" * 50_000 + b"\x11", b"a\x11"),
        (b"\x1b]0;title\x1b[A", b"\x1b[A"),
        (b"\x1b", b"\x1b"),
        (b"\x1b\x1b", b"\x1b\x1b"),
        (b"\x1b[", b"\x1b["),
        (b"\x1b]", b"\x1b]"),
        (b"\x1bP\x1bP\t", b"\x1bP\x1bP\t"),
        (b"\x1b[200~a\x1b[Ab\x1b\x1b]c\tq\x1b[201~\x1b[A", b"\x1b[200~a[Ab]c\tq\x1b[201~\x1b[A"),
        (b"\x1b[200~" + b"long " * 10_000 + b"\x1b[201~q", b"\x1b[200~" + b"long " * 10_000 + b"\x1b[201~q"),
        (b"a\x1b[M \xc8\xff\x1bb\xc3\xa4", b"a\x1bb\xc3\xa4"),
        (b"a\x1b[M \n", b"a\x1b[M \n"),
    ],
)
def test_what_is_passed_on(data: bytes, expected: bytes) -> None:
    assert passed(data) == expected
    assert passed(data, range(0, len(data), 7)) == expected
    assert passed(data[:200], range(200)) == passed(data[:200])


@given(st.lists(st.sampled_from(PIECES), max_size=14).map(b"".join), st.lists(st.integers(0, 200), max_size=6))
@settings(max_examples=500)
def test_however_it_is_cut(data: bytes, cuts: list[int]) -> None:
    whole = passed(data)
    assert passed(data, range(len(data))) == whole
    assert passed(data, [min(cut, len(data)) for cut in cuts]) == whole


def test_after_a_string_without_an_end_keys_count_again() -> None:
    sequences = EscapeSequences()
    assert sequences.feed(b"\x1b]0;title") == b""
    assert sequences.waits
    assert sequences.rest() == b""
    assert not sequences.waits
    assert sequences.feed(b"q") == b"q"


def test_a_paste_may_pause() -> None:
    sequences = EscapeSequences()
    assert sequences.feed(b"\x1b[200~a\x1b[20") == b"\x1b[200~a"
    assert not sequences.waits
    assert sequences.rest() == b""
    assert sequences.feed(b"1~\x1b[A") == b"\x1b[201~\x1b[A"
