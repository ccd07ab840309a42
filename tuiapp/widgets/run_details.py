"""Details of one run that its table row omits: tags, note, directory, reason, and settings that are not defaults."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from trainers.config.options import format_value
from trainers.config.run_config import RunConfig, changed_keys
from trainers.state.known_metrics import format_accuracy
from trainers.state.summary import RunInfo
from trainers.state.text import (
    format_count,
    format_fact,
    format_metric,
    format_path,
    join_words,
    sanitize,
)
from tuiapp.view.run_list import state, tags
from tuiapp.widgets.colors import MUTED

LEAST_LINES, MOST_LINES = 4, 8


class RunDetails(Static):
    """Has a line for each kind of detail, and more where they are long."""

    DEFAULT_CSS = """
    RunDetails {
        padding: 0 1;
        background: $background;
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._info: RunInfo | None = None

    def on_resize(self) -> None:
        self.show(self._info)

    def show(self, info: RunInfo | None) -> None:
        self._info = info
        lines = Content("\n").join(_lines(info)) if info else Content()
        self.update(lines, layout=False)
        needed = lines.get_height({}, self.content_size.width) if self.content_size else LEAST_LINES
        self.styles.height = max(LEAST_LINES, min(MOST_LINES, needed)) + self.gutter.height


def _lines(info: RunInfo) -> list[Content]:
    summary, steps, on = info.summary, format_count(info.summary.steps), info.summary.evaluated_on
    came_to = join_words(
        [
            state(info),
            sanitize(info.reason),
            sanitize(info.where),
            f"step {steps}" if summary.steps and steps not in info.reason else "",
            f"{on} accuracy {format_accuracy(summary.test_accuracy)}" if summary.test_accuracy is not None else "",
            f"{on} loss {format_metric(summary.test_loss)}" if summary.test_loss is not None else "",
        ]
    )
    second = Content.styled(sanitize(info.problem), "$text-warning") if info.problem else Content(_changed(info))
    return [
        _title(info),
        Content(came_to),
        second,
        Content.styled(format_path(info.directory.path), MUTED),
    ]


def _title(info: RunInfo) -> Content:
    """Name, id, tags, and the first line of the note."""
    name, run_id = sanitize(info.name, 100), sanitize(info.directory.run_id)
    more = join_words([run_id if name else "", tags(info), sanitize(info.about.note.partition("\n")[0])])
    return Content.assemble((name or run_id, "bold"), (f" · {more}" if more else "", MUTED))


def _changed(info: RunInfo) -> str:
    """What a script says of its configuration, and the keys that differ from the defaults."""
    if info.config is None:
        return ""
    own = [f"{key}={format_fact(value)}" for key, value in info.facts.config.items()]
    changed = changed_keys(info.config, RunConfig())
    return sanitize(
        "  ".join([*own, *(f"{key}={format_value(value)}" for key, value in changed.items())]) or "all defaults"
    )
