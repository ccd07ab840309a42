"""`tuiapp help`: the handbook."""

from __future__ import annotations

import re
import sys
from argparse import Namespace
from collections.abc import Sequence

from tuiapp.library import manual
from tuiapp.trainers.config.options import suggest

MOST_LINES = 3
"""Most lines of a section that a search prints."""


def show(options: Namespace) -> int:
    """Prints a page, drawn on a terminal and as Markdown elsewhere, or what a search finds; without words the list."""
    words = " ".join(options.words).split()
    if not words:
        _list_pages()
    elif len(words) == 1 and words[0] in manual.TOPICS:
        _print_page(manual.read_page(words[0]))
    else:
        _print_sections(words)
    return 0


def _list_pages() -> None:
    width = max(map(len, manual.TOPICS))
    for topic in manual.TOPICS:
        print(f"{topic:{width}}  {manual.sections(topic)[0].title}")
    print(
        "tuiapp help TOPIC shows a page, tuiapp help WORDS searches all, tuiapp VERB --help shows a verb's options; "
        "F1 in the dashboard.",
        file=sys.stderr,
    )


def _print_page(page: str) -> None:
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        Console().print(Markdown(page, hyperlinks=False))
    else:
        print(page, end="")


def _print_sections(words: Sequence[str]) -> None:
    """Prints the sections that have all words, each with its first lines that have one; raises TopicError for none."""
    sections = manual.search(" ".join(words))
    if not sections:
        raise manual.TopicError(f"no page has {' and '.join(map(repr, words))}.{suggest(words[0], manual.TOPICS)}")
    hit = re.compile("|".join(map(re.escape, words)), re.IGNORECASE)
    for section in sections:
        page = manual.sections(section.topic)[0].title
        _print_marked(f"{section.topic}: ", f"{page} › {section.title}" if section.anchor else page, hit)
        lines = [line.strip() for line in section.text.splitlines() if hit.search(line)]
        for line in lines[:MOST_LINES]:
            _print_marked("    ", line, hit)
    print("tuiapp help TOPIC shows a whole page: TOPIC is what stands before the colon.", file=sys.stderr)


def _print_marked(lead: str, line: str, hit: re.Pattern[str]) -> None:
    """Prints a line with what was searched for in reverse, or between asterisks where no terminal shows it."""
    if not sys.stdout.isatty():
        print(lead + hit.sub(r"*\g<0>*", line))
        return
    from rich.console import Console
    from rich.text import Text

    text = Text(line)
    text.highlight_regex(hit, "bold reverse")
    Console().print(Text(lead) + text)
