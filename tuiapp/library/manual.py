"""The handbook: pages in Markdown that ship with the program, read in the dashboard and by `tuiapp help`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from tuiapp.trainers.config.options import suggest

DIRECTORY = Path(__file__).parents[1] / "manual"

TOPICS = (
    "configure",
    "run",
    "runs",
    "queue",
    "sweeps",
    "scaling",
    "devices",
    "profile",
    "scripts",
    "models",
    "data",
    "backends",
    "nodes",
    "checkpoints",
    "export",
    "settings",
    "configuration",
    "command-line",
    "keys",
    "how-it-works",
)
"""The pages, in the order in which they are listed."""

_COMMENT = re.compile(r"^<!--.*?-->\n", re.MULTILINE)
_NOT_IN_AN_ANCHOR = re.compile(r"[^\w\- ]")


class TopicError(ValueError):
    """There is no such page."""


class Section(NamedTuple):
    topic: str
    title: str
    anchor: str
    """The anchor as GitHub derives it from the heading; "" for the page's beginning."""
    text: str


def read_page(topic: str) -> str:
    """Returns a page's Markdown, which begins with its title; raises TopicError."""
    if topic not in TOPICS:
        allowed = ", ".join(TOPICS)
        raise TopicError(f"there is no page {topic!r}; there are {allowed}.{suggest(topic, TOPICS)}")
    return _COMMENT.sub("", (DIRECTORY / f"{topic}.md").read_text())


def sections(topic: str) -> list[Section]:
    """Returns a page's parts: that before the first heading below the title, and one for each such heading."""
    page = read_page(topic)
    title, _, body = page.removeprefix("# ").partition("\n")
    first, *parts = re.split(r"^## ", body, flags=re.MULTILINE)
    page_sections = [Section(topic, title, "", first.strip())]
    for part in parts:
        heading, _, text = part.partition("\n")
        anchor = _NOT_IN_AN_ANCHOR.sub("", heading.lower()).replace(" ", "-")
        page_sections.append(Section(topic, heading, anchor, text.strip()))
    return page_sections


def search(query: str) -> list[Section]:
    """Returns the sections that have all of these words, those with one in the title first."""
    wanted = query.casefold().split()
    matches = [
        section
        for topic in TOPICS
        for section in sections(topic)
        if all(word in f"{section.title}\n{section.text}".casefold() for word in wanted)
    ]
    return sorted(matches, key=lambda section: not any(word in section.title.casefold() for word in wanted))
