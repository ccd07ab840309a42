"""Details that a row omits: of a run its tags, note, directory, reason and settings, of a group what it came to."""

from __future__ import annotations

from dataclasses import replace

from textual.content import Content

from tuiapp.trainers.config.run_config import RunConfig, changed_keys
from tuiapp.trainers.config.secrets import mask_values
from tuiapp.trainers.state.known_metrics import format_accuracy
from tuiapp.trainers.state.messages import describe_blemishes
from tuiapp.trainers.state.objective import Objective
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.trainers.state.text import (
    format_count,
    format_fact,
    format_metric,
    format_path,
    join_words,
    plural,
    sanitize,
)
from tuiapp.view.groups import ListRow, RunGroup, came_to, value_range
from tuiapp.view.run_list import brief, column_of, objective_words, state, state_counts, tags
from tuiapp.view.run_values import default_keys, differing_keys, key_column, value_text
from tuiapp.widgets.colors import MUTED


def detail_lines(row: ListRow | None, objective: Objective | None, width: int) -> list[Content]:
    """Returns a run's details, or what a group's runs came to by an objective: a line each, wrapped."""
    lines = [] if row is None else _group_lines(row.group, objective) if row.group else _lines(row.infos[0])
    return [part for line in lines for part in line.wrap(width)]


def _lines(info: RunInfo) -> list[Content]:
    summary, steps, on = info.summary, format_count(info.summary.steps), sanitize(info.summary.evaluated_on, 20)
    came_to = join_words(
        [
            state(info),
            sanitize(info.reason),
            describe_blemishes(info.blemishes),
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


def _group_lines(group: RunGroup, objective: Objective | None) -> list[Content]:
    infos = group.infos
    keys = [replace(key_column(key), most=0) for key in differing_keys(infos)]
    alike = "" if group.is_alike else "runs of different configurations"
    name = sanitize(group.name) or f"{brief(infos[0])} and those that differ from it in their seed"
    return [
        Content.assemble((name, "bold"), (f" · {join_words([plural(len(infos), 'run'), alike])}", MUTED)),
        Content(join_words([state_counts(infos, in_words=True), *_came_to(group, objective)])),
        Content("  ".join(f"{column.title} {value_range(infos, column)}" for column in keys)),
        Content.styled("Enter, → and ← open and close the group; z lists all runs", MUTED),
    ]


def _came_to(group: RunGroup, objective: Objective | None) -> list[str]:
    figure = column_of(objective.sort).figure if objective else None
    n = sum(figure.value(info) is not None for info in group.counted) if figure else 0
    if objective is None or figure is None or not n:
        return []
    if group.is_alike:
        return [f"{sanitize(objective.name, 40)} {came_to(group, figure)} (n = {n})"]
    return [f"{objective_words(objective, group.counted)}: {came_to(group, figure)}"]


def _title(info: RunInfo) -> Content:
    """Returns the name, id, tags, and the first line of the note."""
    name, run_id = sanitize(info.name, 100), sanitize(info.directory.run_id)
    rest_of_title = join_words([run_id if name else "", tags(info), sanitize(info.about.note.partition("\n")[0])])
    return Content.assemble((name or run_id, "bold"), (f" · {rest_of_title}" if rest_of_title else "", MUTED))


def _changed(info: RunInfo) -> str:
    """Returns what a script says of its configuration and the keys that differ from the defaults, its library's too."""
    if info.config is None:
        return ""
    unset = default_keys(info)
    reported = mask_values(info.facts.config)
    script_values = [f"{key}={format_fact(value)}" for key, value in reported.items() if key not in unset]
    changed = mask_values(changed_keys(info.config, RunConfig()))
    return sanitize(
        "  ".join([*script_values, *(f"{key}={value_text(value)}" for key, value in changed.items())]) or "all defaults"
    )
