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


def test_a_page_that_is_not_there(tuiapp: Command) -> None:
    done = tuiapp("help", "node")
    assert done.code == 2
    assert done.out == ""
    assert "Did you mean 'nodes'?" in done.err
