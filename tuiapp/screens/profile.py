"""Profile: where the time of a run's profiled steps went, and the key that has more of them profiled."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from tuiapp.actions import profile
from tuiapp.screens.acting import perform
from tuiapp.terminal.textual_fixes import CoveredScreenFix
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.run_state import RunState, Topic
from tuiapp.trainers.state.text import plural
from tuiapp.view.marks import series_color
from tuiapp.view.profile import GLYPHS, latest, lines
from tuiapp.widgets.steady_footer import SteadyFooter

STEPS = 10
"""Steps that one press of the key profiles."""


class ProfileScreen(CoveredScreenFix[None]):
    """Covers the Run screen, which calls `follow` when something has changed."""

    CSS_PATH = "profile.tcss"
    MANUAL = "profile"

    AUTO_FOCUS: ClassVar[str | None] = "VerticalScroll"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("P", "profile", "Profile", tooltip=f"The next {STEPS} steps", id="profile.profile"),
        Binding("r", "next_rank", "Rank", tooltip="What the next rank did", id="profile.rank"),
        Binding("question_mark", "app.toggle_help", "Keys", key_display="?", tooltip="List the keys", id="app.help"),
        Binding("escape", "dismiss", "Back", key_display="esc", id="profile.back"),
        Binding("q", "app.quit", "Quit", tooltip="Quit tuiapp", id="app.quit-letter"),
    ]

    def __init__(self, run: RunDir, state: Callable[[], RunState], why_not: Callable[[], str]) -> None:
        """`why_not` says why no step can be profiled now; "" if they can."""
        super().__init__()
        self._run, self._state, self._why_not = run, state, why_not
        self._rank: int | None = None
        self._asked_at = -1
        """The step that the run had reached when profiling was asked for; −1 if it was not."""

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(id="profile", markup=False)
        yield SteadyFooter()

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).border_title = Content("where the time of a step goes")
        if not self._state().profiles and not self._why_not():
            self.action_profile()
        self.follow(frozenset({"profiles"}))

    def on_resize(self) -> None:
        self._show()

    def follow(self, topics: frozenset[Topic]) -> None:
        """Shows what is new in the run's state."""
        if topics & {"profiles", "run", "alerts"}:
            self._show()

    def _show(self) -> None:
        profiles = latest(self._state().profiles)
        table = lines(profiles, self.size.width - 6, self._rank) if profiles else ()
        content = Content("\n".join((self._standing(bool(profiles)), "", *table)).strip())
        dark = self.app.current_theme.dark
        for index, glyph in enumerate(GLYPHS.values()):
            for run in re.finditer(rf"{re.escape(glyph)}+", content.plain):
                # A point between words is no bar.
                if glyph != "·" or content.plain[run.start() - 1] in GLYPHS.values() or len(run.group()) > 1:
                    content = content.stylize(series_color(index, dark=dark), run.start(), run.end())
        self.query_one("#profile", Static).update(content)

    def _standing(self, found: bool) -> str:
        if why := self._why_not():
            return why if not found else ""
        state, failure, ready = self._state(), "", f"P profiles the next {plural(STEPS, 'step')}."
        if self._asked_at < 0:
            return ready
        for alert in state.alerts:
            if alert.kind == "profile" and (alert.step or 0) > self._asked_at:
                failure = f"Rank {alert.rank}: {alert.text}. "
        if failure or any(record.step > self._asked_at for record in state.profiles.values()):
            return failure + ready
        done = state.step - self._asked_at
        if done > STEPS:
            return f"{plural(STEPS, 'step')} are done: reading what took their time …"
        return f"Profiling step {done} of {STEPS} …" if done else f"Profiling {plural(STEPS, 'step')} …"

    @work(exclusive=True, group="control")
    async def action_profile(self) -> None:
        if why := self._why_not():
            self.notify(why)
        elif (await perform(self.app, profile.do, self._run, STEPS)).done:
            self._asked_at = self._state().step
            self._show()

    def action_next_rank(self) -> None:
        ranks = [record.rank for record in latest(self._state().profiles)]
        if len(ranks) > 1:
            self._rank = ranks[(ranks.index(self._rank) + 1) % len(ranks)] if self._rank in ranks else ranks[1]
            self._show()
        else:
            self.notify("There is one rank." if ranks else "No step was profiled.")
