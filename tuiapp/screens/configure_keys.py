"""What keys do on the Configure screen."""

from __future__ import annotations

from textual.binding import Binding, BindingType

CONFIGURE_KEYS: list[BindingType] = [
    Binding("ctrl+r", "launch", "Launch", tooltip="Launch the run", id="configure.launch"),
    Binding("ctrl+s", "save", "Save", tooltip="Save as a preset", id="configure.save"),
    Binding("ctrl+l", "focus_presets", "Presets", tooltip="Choose a preset", id="configure.presets"),
    Binding("ctrl+y", "copy_command", "Copy", tooltip="Copy the command", id="configure.copy"),
    Binding("ctrl+o", "app.watch", "Watch", tooltip="Watch the newest run", id="app.watch"),
    Binding("ctrl+g", "app.show_runs", "Runs", tooltip="List all runs", id="app.runs"),
    Binding("f1,question_mark", "app.toggle_help", "Keys", tooltip="List the keys", id="app.help"),
    Binding("ctrl+q", "app.leave", "Leave", tooltip="Leave tuiapp", id="app.leave", priority=True),
    Binding("ctrl+z", "undo", "Undo", tooltip="Undo the last load", id="configure.undo", show=False),
    Binding("f5", "restore", "Restore the preset", id="configure.restore", show=False),
    Binding("f6", "look_again", "Look at devices again", id="configure.look", show=False),
    Binding("q", "app.leave", "Leave", id="app.leave-letter", show=False),
]
