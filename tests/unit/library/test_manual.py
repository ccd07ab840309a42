"""The handbook's pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tests.manual
from tests.kit import ROOT
from tuiapp.library import manual

PAGES = [ROOT / "README.md", ROOT / "tests/README.md", ROOT / "tests/bench/README.md", *manual.DIRECTORY.glob("*.md")]


def test_what_is_generated_is_not_stale() -> None:
    stale = [
        topic for topic, page in tests.manual.pages().items() if (manual.DIRECTORY / f"{topic}.md").read_text() != page
    ]
    assert not stale, "make these pages anew: python -m tests.manual"


def test_every_page_is_listed() -> None:
    assert sorted(path.stem for path in manual.DIRECTORY.glob("*.md")) == sorted(manual.TOPICS)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith("http"):
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        if anchor:
            assert anchor in [section.anchor for section in manual.sections(target.stem)], link


def test_the_door_is_no_manual() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= 12_000


def test_a_search_finds_the_section_with_all_words() -> None:
    found = manual.search("Kills supervisor REAPER")
    assert [(one.topic, one.title) for one in found] == []
    found = manual.search("supervisor REAPER lost")
    assert ("checkpoints", "When something dies") in [(one.topic, one.title) for one in found]
    # What has it in its title comes first.
    assert manual.search("environments")[0].anchor == "environments"
