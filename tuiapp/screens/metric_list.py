"""Chooses the metric to draw from those that a run has reported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from trainers.state.known_metrics import grouped, metric
from trainers.state.text import sanitize
from tuiapp.screens.dialog import Dialog

MANY = 16
"""With more metrics a search field is shown."""

MAX_NAME = 60

NOTHING = ""
"""Returned for no metric."""


class MetricList(Dialog[str | None]):
    """Returns the chosen name, or None on escape; a label `nothing` adds a choice that returns `NOTHING`."""

    CSS_PATH = "metric_list.tcss"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Cancel", id="dialog.cancel"),
        Binding("down", "move('cursor_down')", "Next metric", id="metrics.next", show=False),
        Binding("up", "move('cursor_up')", "Previous metric", id="metrics.previous", show=False),
        Binding("pagedown", "move('page_down')", "A page down", id="metrics.page-down", show=False),
        Binding("pageup", "move('page_up')", "A page up", id="metrics.page-up", show=False),
    ]

    def __init__(self, names: Sequence[str], drawn: str, *, title: str, nothing: str = "") -> None:
        super().__init__()
        self._names, self._drawn, self._title, self._nothing = names, drawn, title, nothing

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog") as dialog:
            dialog.border_title = Content(self._title)
            if len(self._names) > MANY:
                yield Input(placeholder=f"Search {len(self._names):,} metrics", id="search", max_length=MAX_NAME)
            yield OptionList(id="metrics", markup=False)

    def on_mount(self) -> None:
        self._show("")
        self.query_one("#search" if self.query("#search") else "#metrics").focus()

    @on(Input.Changed, "#search")
    def _search(self, event: Input.Changed) -> None:
        self._show(event.value)

    @on(Input.Submitted, "#search")
    def _take_highlighted(self) -> None:
        self.query_one(OptionList).action_select()

    @on(OptionList.OptionSelected)
    def _take(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        place = int(event.option_id or 0)
        self.dismiss(self._names[place] if place >= 0 else NOTHING)

    def action_move(self, where: str) -> None:
        getattr(self.query_one(OptionList), f"action_{where}")()

    def _show(self, search: str) -> None:
        options = [Option(Content(self._nothing), id="-1")] if self._nothing and not search.strip() else []
        for group, names in grouped(self._names, search).items():
            if group:
                options.append(Option(Content.styled(group, "$text-primary"), disabled=True))
            options += [Option(self._line(name), id=str(self._names.index(name))) for name in names]
        if not options:
            options.append(Option(Content("no such metric"), disabled=True))
        box = self.query_one(OptionList)
        box.clear_options()
        box.add_options(options)
        chosen = str(self._names.index(self._drawn)) if self._drawn in self._names else "-1"
        ids = [option.id for option in options]
        box.highlighted = ids.index(chosen) if chosen in ids else next((n for n, one in enumerate(ids) if one), None)

    def _line(self, name: str) -> Content:
        label, own = metric(name).label, sanitize(name, MAX_NAME)
        mark = "✓ " if name == self._drawn else "  "
        # Not fainter than the label: unreadable on the cursor's background in some themes.
        return Content(f"{mark}{label}" if label == own else f"{mark}{label}  ({own})")
