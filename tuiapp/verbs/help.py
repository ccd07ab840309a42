"""`tuiapp help`: the handbook."""

from __future__ import annotations

import sys
from argparse import Namespace

from tuiapp.library import manual


def show(options: Namespace) -> int:
    """Prints a page, drawn on a terminal and as Markdown elsewhere; without a topic the list of pages."""
    if options.topic is None:
        width = max(map(len, manual.TOPICS))
        for topic in manual.TOPICS:
            print(f"{topic:{width}}  {manual.sections(topic)[0].title}")
        print(
            "tuiapp help TOPIC shows a page, tuiapp VERB --help a verb's options; F1 in the dashboard.", file=sys.stderr
        )
        return 0
    page = manual.read_page(options.topic)
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        Console().print(Markdown(page, hyperlinks=False))
    else:
        print(page, end="")
    return 0
