"""What keys do on the Configure screen."""

from __future__ import annotations

from textual.binding import Binding, BindingType

CONFIGURE_KEYS: list[BindingType] = [
    Binding("ctrl+r", "launch", "Launch", id="configure.launch"),
    Binding("ctrl+s", "save", "Save", id="configure.save"),
    Binding("ctrl+l", "focus_presets", "Presets", id="configure.presets"),
    Binding("ctrl+y", "copy_command", "Copy", id="configure.copy"),
    Binding("ctrl+o", "app.watch", "Watch", id="app.watch"),
    Binding("ctrl+g", "app.show_runs", "Runs", id="app.runs"),
    Binding("f1,question_mark", "app.toggle_help", "Keys", id="app.help"),
    Binding("ctrl+q", "app.leave", "Leave", id="app.leave", priority=True),
    Binding("ctrl+z", "undo", "Undo", id="configure.undo", show=False),
    Binding("f5", "restore", "Restore the preset", id="configure.restore", show=False),
    Binding("f6", "look_again", "Look at devices again", id="configure.look", show=False),
    Binding("q", "app.leave", "Leave", id="app.leave-letter", show=False),
]
