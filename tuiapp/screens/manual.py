"""The handbook: its pages, with a table of contents and a search."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, Markdown, OptionList
from textual.widgets.option_list import Option

from tuiapp.library import manual
from tuiapp.terminal.textual_fixes import CoveredScreenFix
from tuiapp.widgets.steady_footer import SteadyFooter


class ManualScreen(CoveredScreenFix[None]):
    """The handbook, opened on the page `topic`."""

    CSS_PATH = "manual.tcss"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "Search", key_display="/", id="manual.search"),
        Binding("tab", "app.focus_next", "Contents", id="manual.contents", tooltip="Contents and back"),
        Binding("question_mark", "app.toggle_help", "Keys", key_display="?", id="app.help"),
        Binding("escape", "back", "Back", id="manual.back"),
        Binding("q", "app.quit", "Quit", id="app.quit-letter"),
    ]

    def __init__(self, topic: str) -> None:
        super().__init__()
        self.topic = topic

    def compose(self) -> ComposeResult:
        with Horizontal():
            with Vertical(id="contents"):
                yield Input(placeholder="Search the handbook", id="search", compact=True)
                yield OptionList(id="sections", markup=False, compact=True)
            with VerticalScroll(id="page"):
                yield Markdown(open_links=False)
        yield SteadyFooter()

    async def on_mount(self) -> None:
        self.query_one("#page").focus()
        await self._open(self.topic)

    def action_search(self) -> None:
        self.query_one(Input).focus()

    def action_back(self) -> None:
        """Clears the search, and then closes the handbook."""
        search = self.query_one(Input)
        if search.value:
            search.value = ""
            self.query_one("#page").focus()
        else:
            self.dismiss()

    @on(Input.Changed)
    def _list(self) -> None:
        search = self.query_one(Input).value
        if search.strip():
            sections = manual.search(search)
        else:
            # The pages, and of the present one its sections.
            sections = [
                section
                for topic in manual.TOPICS
                for section in manual.sections(topic)
                if topic == self.topic or not section.anchor
            ]
        contents = self.query_one(OptionList)
        contents.clear_options()
        contents.add_options(
            Option(Content("  " * bool(section.anchor) + section.title), id=f"{section.topic}#{section.anchor}")
            for section in sections
        )
        if not sections:
            contents.add_option(Option("No page has these words.", disabled=True))
        here = [index for index, section in enumerate(sections) if section.topic == self.topic]
        contents.highlighted = 0 if search.strip() and sections else here[0] if here else None

    @on(Input.Submitted)
    def _take_highlighted(self) -> None:
        self.query_one(OptionList).action_select()

    @on(OptionList.OptionSelected)
    async def _go(self, event: OptionList.OptionSelected) -> None:
        topic, _, anchor = (event.option_id or "").partition("#")
        await self._open(topic, anchor)
        self.query_one("#page").focus()

    @on(Markdown.LinkClicked)
    async def _follow(self, event: Markdown.LinkClicked) -> None:
        file, _, anchor = event.href.partition("#")
        topic = file.removesuffix(".md") or self.topic
        if topic in manual.TOPICS:
            await self._open(topic, anchor)
        else:
            self.notify(f"Not a page of the handbook: {event.href}", markup=False)

    async def _open(self, topic: str, anchor: str = "") -> None:
        page = self.query_one(Markdown)
        if topic != self.topic or not page.source:
            self.topic = topic
            await page.update(manual.read_page(topic))
        self._list()
        if anchor:
            self.call_after_refresh(page.goto_anchor, anchor)
        else:
            self.query_one("#page").scroll_home(animate=False)
