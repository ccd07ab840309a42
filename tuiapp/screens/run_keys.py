"""The Run screen's panels and keys."""

from __future__ import annotations

from textual.binding import Binding, BindingType

from tuiapp.screens.chart_keys import view_keys

PANELS = ("loss", "devices", "ranks", "sharding", "log", "failure")
"""In the order of their keys, 1 to 6; the last one is there after a failure, or in a hang, only."""

PANEL_WORDS = {"failure": "Failure or hang"}
"""What keys say of panels whose names do not say all."""

REPLAY_KEYS: list[BindingType] = [
    Binding("space", "replay('pause')", "Pause", id="run.pause", key_display="space"),
    Binding("comma", "replay('back')", "Back 5 %", id="run.back-5", key_display=",", show=False),
    Binding("full_stop", "replay('forward')", "Forward 5 %", id="run.forward-5", key_display=".", show=False),
    Binding("less_than_sign", "replay('slower')", "Slower", id="run.slower", key_display="<", show=False),
    Binding("greater_than_sign", "replay('faster')", "Faster", id="run.faster", key_display=">", show=False),
]
"""Work only in a replay."""

CHART_KEYS: list[BindingType] = [
    Binding("m", "chart('metric')", "Metric", id="run.metric"),
    Binding("M", "chart('second')", "Second chart", id="run.second-chart", show=False),
    Binding("y", "chart('log')", "Log y", id="run.log-y"),
    Binding("t", "chart('time')", "By time or step", id="run.by-time-or-step", show=False),
    Binding(
        "left_square_bracket", "chart('rougher')", "Less smooth", id="run.less-smooth", key_display="[", show=False
    ),
    Binding("right_square_bracket", "chart('smoother')", "Smoother", id="run.smoother", key_display="]", show=False),
    *view_keys("run", show=False),
]

RUN_KEYS: list[BindingType] = [
    Binding("s", "stop", "Stop", id="run.stop"),
    Binding("c", "checkpoint", "Save", id="run.checkpoint"),
    Binding("u", "resume", "Resume", id="run.resume"),
    *CHART_KEYS,
    Binding("r", "next_rank", "Rank", id="run.rank"),
    Binding("f", "follow", "Follow", id="run.follow", show=False),
    Binding("n", "find(1)", "Find next", id="run.find-next", show=False),
    Binding("N", "find(-1)", "Find previous", id="run.find-previous", show=False),
    Binding("o", "stream", "Output: stdout, stderr", id="run.output", show=False),
    Binding("k", "sort_ranks", "Sort ranks", id="run.sort-ranks", show=False),
    Binding("d", "dismiss_alert", "Dismiss the alert", id="run.dismiss-the-alert", show=False),
    Binding("slash", "search", "Find", id="run.search", key_display="/"),
    *(
        Binding(str(n), f"panel('{name}')", PANEL_WORDS.get(name, name.capitalize()), id=f"run.panel-{n}", show=False)
        for n, name in enumerate(PANELS, start=1)
    ),
    *REPLAY_KEYS,
    Binding("question_mark", "app.toggle_help", "Keys", id="app.help", key_display="?"),
    Binding("g", "app.show_runs", "Runs", id="app.runs"),
    Binding("escape", "back", "Back", id="run.back", show=False),
    Binding("q", "app.leave", "Leave", id="app.leave-letter"),
]
"""Those that are not shown in the footer, which has to fit 80 columns, are in the help and in the palette."""
