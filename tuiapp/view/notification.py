"""Desktop notifications through the terminal's escape sequences."""

from __future__ import annotations

from collections.abc import Mapping

from tuiapp.trainers.config.script import data_name, subject
from tuiapp.trainers.state.messages import describe_blemishes, describe_result
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.trainers.state.text import sanitize, without_directories

MAX_CHARACTERS = 200


def notification(kind: str, title: str, text: str, environment: Mapping[str, str]) -> str:
    """Returns the escape sequence of a notification, or "" for none.

    `kind` is osc9 (iTerm2, kitty, WezTerm, Ghostty, Windows Terminal), osc777 (urxvt, foot, VTE's) or off. osc9 has no
    title and prepends it to `text`, one sentence, which is sanitized. `environment` identifies the terminal.
    """
    terminal = environment.get("TERM", "")
    if terminal in ("", "dumb", "linux"):
        return ""
    title, text = (sanitize(part, MAX_CHARACTERS).replace(";", ",") for part in (title, text))
    if kind == "osc9":
        # ConEmu and Windows Terminal read "9;" and a digit as other commands: a title comes first.
        sequence = f"\x1b]9;{title}: {text}\x07"
    elif kind == "osc777":
        sequence = f"\x1b]777;notify;{title};{text}\x07"
    else:
        return ""
    if not environment.get("TMUX"):
        return sequence
    # Wrapped, tmux passes it on where `allow-passthrough` is on.
    doubled = sequence.replace("\x1b", "\x1b\x1b")
    return f"\x1bPtmux;{doubled}\x1b\\"


def ending(info: RunInfo) -> str:
    """Describes how a run ended, in one short sentence."""
    config = info.config
    what = info.name or info.directory.run_id
    if config:
        trained = " on ".join(filter(None, map(without_directories, (subject(config), data_name(config)))))
        what = f"{info.name} ({trained})" if info.name else trained
    came_to = f", {result}" if (result := describe_result(info.summary)) else ""
    why = f": {info.reason}" if info.status in ("failed", "lost") else ""
    marred = f" · {words}" if (words := describe_blemishes(info.blemishes)) else ""
    return sanitize(f"{what} {info.status}{came_to}{why}{marred}")
