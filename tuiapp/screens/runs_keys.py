"""The keys of the Runs screen."""

from __future__ import annotations

from textual.binding import Binding, BindingType

from tuiapp.state.run_list import COLUMNS

SORT_KEYS = [column.name for column in COLUMNS][:9]
"""Sorted by with the keys 1 to 9."""

OF_A_RUN = frozenset(("open", "mark", "clone", "resume", "stop", "export", "delete", "replay", "copy_path", "compare"))
"""Actions that need a run under the cursor."""

RUNS_KEYS: list[BindingType] = [
    Binding("enter", "open", "Open", tooltip="Open the run", id="runs.open"),
    Binding("x", "mark", "Mark", tooltip="Mark or unmark", id="runs.mark"),
    Binding("c", "compare", "Compare", tooltip="Compare marked runs", id="runs.compare"),
    Binding("n", "clone", "Clone", tooltip="Clone into the form", id="runs.clone"),
    Binding("u", "resume", "Resume", tooltip="Resume the run", id="runs.resume"),
    Binding("s", "stop", "Stop", tooltip="Stop the run", id="runs.stop"),
    Binding("slash", "filter", "Filter", key_display="/", tooltip="Filter by words", id="runs.filter"),
    # With these the footer would not fit 80 columns.
    Binding("e", "export", "Export", tooltip="Export its figures", id="runs.export", show=False),
    Binding("d,delete", "delete", "Delete", key_display="d", tooltip="Delete the run", id="runs.delete", show=False),
    Binding("p", "replay", "Replay", tooltip="Replay the run", id="runs.replay", show=False),
    Binding("y", "copy_path", "Copy the path", id="runs.copy", show=False),
    Binding("X", "unmark", "Unmark all", id="runs.unmark", show=False),
    Binding("o", "next_sort", "Sort by next column", id="runs.sort", show=False),
    Binding("r", "reverse", "Reverse the order", id="runs.reverse", show=False),
    *(
        Binding(str(key), f"sort('{name}')", f"Sort by {name}", id=f"runs.sort-{name}", show=False)
        for key, name in enumerate(SORT_KEYS, start=1)
    ),
    Binding("question_mark", "app.toggle_help", "Keys", key_display="?", tooltip="List the keys", id="app.help"),
    Binding("escape,ctrl+g", "back", "Back", key_display="esc", id="runs.back"),
    Binding("q", "app.leave", "Leave", tooltip="Leave tuiapp", id="app.leave-letter", show=False),
]
