"""Makes the generated parts of the handbook anew: `python -m tests.manual`.

The tables of configuration keys, verbs and key bindings come from their declarations.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from tuiapp.cli import build_parser
from tuiapp.library.manual import DIRECTORY
from tuiapp.trainers.config.options import WORDS, Option, Value
from tuiapp.trainers.config.run_config import OPTIONS

BEGIN, END = "<!-- generated: python -m tests.manual -->\n", "<!-- end -->\n"


def main() -> None:
    """Writes the pages that are stale, and names them."""
    for topic, page in pages().items():
        path = DIRECTORY / f"{topic}.md"
        if path.read_text() != page:
            path.write_text(page)
            print(path)


def pages() -> dict[str, str]:
    """Returns the pages with generated parts as they should be."""
    parts = {"configuration": configuration, "command-line": command_line, "keys": keys}
    return {topic: _filled((DIRECTORY / f"{topic}.md").read_text(), make()) for topic, make in parts.items()}


def configuration() -> str:
    """A table of all options."""
    return _table(
        ["Key", "Default", "Values", ""],
        [
            [
                f"`{option.key}`",
                _shown(option.default),
                option.allowed().removeprefix("one of "),
                _about(option),
            ]
            for option in OPTIONS.values()
        ],
    )


def command_line() -> str:
    """All verbs with their arguments and options, a table each."""
    return "\n".join(_verbs("tuiapp", build_parser()))


def keys() -> str:
    """A table of all key bindings."""
    import tuiapp.app  # noqa: F401 (its keys count as well)
    from tuiapp.screens.preferences import bindings

    return _table(
        ["Action", "Keys", ""], [[f"`{one.name}`", one.keys.replace(",", ", "), one.does] for one in bindings()]
    )


def _verbs(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    verbs = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    own = [one for one in parser._actions if one not in verbs and one.dest not in ("help", "version", "runs_dir")]
    if own and " " in name:
        yield _table(["", ""], [_argument(parser, one) for one in own])
    for action in verbs:
        about = {choice.dest: choice.help or "" for choice in action._choices_actions}
        for verb, inner in action.choices.items():
            yield f"### {name} {verb}\n\n{_sentence(about[verb])}\n"
            yield from _verbs(f"{name} {verb}", inner)


def _argument(parser: argparse.ArgumentParser, action: argparse.Action) -> list[str]:
    words = ", ".join(action.option_strings) or str(action.metavar)
    takes = f" {action.metavar}" if action.option_strings and action.nargs != 0 else ""
    return [f"`{words}{takes}`", parser._get_formatter()._expand_help(action) if action.help else ""]


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _about(option: Option) -> str:
    condition = f"with `{option.only[0]}` {' or '.join(option.only[1])}" if option.only is not None else ""
    also = f"also {', '.join(f'`{name}`' for name in option.aliases)}" if option.aliases else ""
    return "; ".join(filter(None, (option.help, condition, also)))


def _shown(value: Value) -> str:
    if isinstance(value, bool):
        return next(word for word, meaning in WORDS.items() if meaning is value)
    return "" if value in ("", ()) else f"{value:g}" if isinstance(value, float) else str(value)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [
        head,
        ["---"] * len(head),
        *([cell.replace("|", "\\|").replace("<", "\\<") for cell in row] for row in rows),
    ]
    return "".join("|" + "|".join(f" {cell} " if cell else " " for cell in line) + "|\n" for line in lines)


def _filled(page: str, part: str) -> str:
    pattern = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    assert pattern.search(page)
    return pattern.sub(lambda _: f"{BEGIN}\n{part.rstrip()}\n\n{END}", page)


if __name__ == "__main__":
    main()
