"""What the Runs screen says of the list as a whole."""

from __future__ import annotations

from pathlib import Path

from textual.content import Content

from tuiapp.feeds.runs_feed import Listing
from tuiapp.state.run_list import BY_NAME
from tuiapp.state.text import join_words, plural, sanitize_lines
from tuiapp.widgets.colors import MUTED


def instead_of_table(listing: Listing | None, shown: int, runs_dir: Path) -> Content:
    """What stands in the table's place when there is nothing in it; empty when there is.

    Args:
        listing: What was found; None while that is being found out.
        shown: How many runs are left by the filter.
        runs_dir: Where they are looked for.
    """
    if listing is None:
        words = f"Looking for runs in {runs_dir} …"
    elif listing.problem:
        words = f"✗ {listing.problem}\nAnother place: --runs-dir, or TUIAPP_RUNS_DIR."
    elif not listing.infos:
        words = "No run yet.\nEscape leads to the form; Ctrl+R there launches the first one."
    else:
        words = "" if shown else "No run has all these words. Escape shows all."
    return Content("\n".join(sanitize_lines(words)))


def heading(listing: Listing | None, shown: int, marked: int, by: str, *, reverse: bool) -> Content:
    """The screen's first line.

    Args:
        listing: What was found; None while that is being found out.
        shown: How many runs are left by the filter.
        marked: How many are marked.
        by: The column that they are sorted by.
        reverse: Whether the other way round.
    """
    title = Content.styled("Runs", "bold $text-primary")
    if listing is None or not listing.infos:
        return title
    count = plural(len(listing.infos), "run")
    live = sum(info.is_live for info in listing.infos)
    facts = join_words(
        [
            f"{shown} of {count}" if shown < len(listing.infos) else count,
            f"{live} live" if live else "",
            f"{marked} marked" if marked else "",
            f"sorted by {BY_NAME[by].title}{', reversed' if reverse else ''}",
        ]
    )
    return Content.assemble(title, "  ", (facts, MUTED))
