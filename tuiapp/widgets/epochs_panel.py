"""What each epoch came to, the newest first."""

from __future__ import annotations

from textual.content import Content

from tuiapp.trainers.state.run_state import RunState
from tuiapp.view.epochs import epoch_columns
from tuiapp.view.table import plain_table, told
from tuiapp.widgets.colors import MUTED
from tuiapp.widgets.text_view import TextPanel

MOST_ROWS = 500
"""Drawn at each change; `tuiapp show --all` and exports have all."""


class EpochsPanel(TextPanel):
    WAITING = "no step has been reported yet"

    def lines(self, state: RunState, width: int) -> list[Content]:
        rows = state.curves.last_epochs(MOST_ROWS)[::-1] if self.display else []
        if not rows:
            return []
        heading, *lines = plain_table(told(epoch_columns(state.curves.names), rows), rows, width)
        return [Content.styled(heading, MUTED), *(Content(line) for line in lines)]
