from __future__ import annotations

from tests.kit.command_line import Command
from tuiapp.library import manual


def test_the_pages_are_listed(tuiapp: Command) -> None:
    done = tuiapp("help")
    assert [line.split()[0] for line in done.out.splitlines()] == list(manual.TOPICS)
    assert "tuiapp help TOPIC" in done.err


def test_a_page_is_printed_as_it_is_written(tuiapp: Command) -> None:
    done = tuiapp("help", "nodes")
    assert done.code == 0
    assert done.out == manual.read_page("nodes")


def test_words_are_searched_and_marked(tuiapp: Command) -> None:
    done = tuiapp("help", "Hang", "stacks")
    assert done.code == 0
    sections = [line for line in done.out.splitlines() if not line.startswith("    ")]
    assert "checkpoints: Stop, resume, failures › When something dies" in sections
    assert "a rank *hang*s" in done.out
    assert "*stacks*" in done.out
    # One word that is no page is searched, too.
    assert "nodes: More than one machine › When a *node* is out of reach" in tuiapp("help", "node").out


def test_words_that_no_page_has(tuiapp: Command) -> None:
    done = tuiapp("help", "nodse")
    assert (done.code, done.out, done.err) == (2, "", "tuiapp: no page has 'nodse'. Did you mean 'nodes'?\n")
    assert tuiapp("help", "supervisor", "zebra").err == "tuiapp: no page has 'supervisor' and 'zebra'.\n"
