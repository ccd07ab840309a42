"""The pictures and texts that a run has logged, named."""

from __future__ import annotations

from collections.abc import Mapping

from tuiapp.trainers.state.media import Kept
from tuiapp.trainers.state.text import plural


def media_words(kept: Kept) -> str:
    """Says how many there are of a name, and which file is the last."""
    last = kept.files[-1]
    left_out = f", {kept.left_out:,} more are not kept" if kept.left_out else ""
    return f"{plural(len(kept.files), last.kind)}{left_out}; of step {last.step:,}: media/{last.file}"


def media_facts(named: Mapping[str, Kept]) -> dict[str, object]:
    """Returns them ready for JSON."""
    return {
        name: {
            "left_out": kept.left_out,
            "files": [
                {"step": one.step, "rank": one.rank, "kind": one.kind, "file": one.file, "caption": one.caption}
                for one in kept.files
            ],
        }
        for name, kept in named.items()
    }
