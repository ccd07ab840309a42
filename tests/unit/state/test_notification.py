from __future__ import annotations

from dataclasses import replace

import pytest

from tests.kit.runs_app import info
from tuiapp.trainers.contract.sidecars import About
from tuiapp.view.notification import ending, notification


@pytest.mark.parametrize(
    ("kind", "environment", "sequence"),
    [
        ("osc9", {"TERM": "xterm"}, "\x1b]9;tuiapp: it ended, well\x07"),
        ("osc777", {"TERM": "foot"}, "\x1b]777;notify;tuiapp;it ended, well\x07"),
        ("off", {"TERM": "xterm"}, ""),
        ("osc9", {"TERM": "linux"}, ""),
        ("osc9", {}, ""),
        ("osc9", {"TERM": "tmux", "TMUX": "/tmp/tmux"}, "\x1bPtmux;\x1b\x1b]9;tuiapp: it ended, well\x07\x1b\\"),
    ],
)
def test_the_terminal_is_asked_in_its_own_words(kind: str, environment: dict[str, str], sequence: str) -> None:
    assert notification(kind, "tuiapp", "it ended; well", environment) == sequence


def test_nothing_of_the_text_can_end_the_sequence_or_begin_another() -> None:
    hostile = "a\x07b\x1b]52;c;aGk=\x07\x9c\x1b\\d\u202e"
    sequence = notification("osc9", "t\x1b", hostile, {"TERM": "xterm"})
    assert sequence.count("\x1b") == 1
    assert sequence.count("\x07") == 1
    assert sequence.endswith("\x07")


def test_an_ending_has_the_name_of_the_run() -> None:
    assert ending(info(1)) == "net on digits completed, test accuracy 90.0 %"
    named = replace(info(1), about=About(name="baseline"))
    assert ending(named) == "baseline (net on digits) completed, test accuracy 90.0 %"
