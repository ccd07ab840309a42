"""Options stand where a user writes them: before, between and after the words of a verb."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pytest

from tests.kit.command_line import Command
from tuiapp.cli import _parse, build_parser


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield the parsers of all verbs and actions."""
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not nested:
        yield parser
    for action in nested:
        for one in action.choices.values():
            yield from leaves(one)


SEVERAL = [
    parser.prog.split()[1:] for parser in leaves(build_parser())
    if parser.prog != "tuiapp help" and {action.nargs for action in parser._get_positional_actions()} & {"*", "+"}
]  # fmt: skip


@pytest.mark.parametrize("verb", SEVERAL, ids=" ".join)
def test_an_option_between_the_words_of_a_verb(verb: list[str]) -> None:
    words, option = ["one", "two", "three"], ["--runs-dir", "/r"]
    option += ["-o", "page.html"] if verb == ["report"] else []
    first, *others = [vars(_parse([*verb, *words[:place], *option, *words[place:]])) for place in range(4)]
    assert first.pop("parser").prog == f"tuiapp {' '.join(verb)}"
    for other in others:
        assert {**other, "parser": None} == {**first, "parser": None}


def test_words_after_an_option_that_takes_a_value() -> None:
    options = _parse(["metrics", "latest", "loss", "--points", "5", "--json", "eval/loss"])
    assert (options.run, options.metrics, options.points, options.json) == ("latest", ["loss", "eval/loss"], 5, True)


def test_what_follows_two_dashes_is_the_scripts() -> None:
    options = _parse(["run", "--detach", "train.py", "--name", "x", "--", "--json", "-y", "--", "z"])
    assert (options.source, options.name, options.json) == ("train.py", "x", False)
    assert options.arguments == ["--json", "-y", "--", "z"]


def test_a_word_that_looks_like_an_option_stands_after_two_dashes() -> None:
    assert _parse(["rm", "-y", "--", "--odd"]).runs == ["--odd"]


def test_what_a_verb_does_not_know_is_still_refused(tuiapp: Command) -> None:
    done = tuiapp("metrics", "latest", "--jsno", "loss")
    assert done.code == 2
    assert "unrecognized arguments: --jsno loss. Did you mean --json?" in done.err
