"""Runs side by side: the configuration keys in which they differ, and their results; or those against a baseline's."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tuiapp.trainers.config.run_config import OPTIONS
from tuiapp.trainers.contract.metrics import ACCURACIES, LOSS, RATE, TEST_ACCURACY, TEST_LOSS, split
from tuiapp.trainers.state.known_metrics import KNOWN, format_accuracy
from tuiapp.trainers.state.messages import describe_blemishes
from tuiapp.trainers.state.objective import Objective
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.trainers.state.text import (
    MISSING,
    format_count,
    format_duration,
    join_words,
    plural,
    sanitize,
    without_directories,
)
from tuiapp.view.groups import (
    Row,
    RunGroup,
    came_to_row,
    fold,
    name_of,
    runs_of,
    value_range,
    whose,
)
from tuiapp.view.marks import LETTERS
from tuiapp.view.run_list import BY_NAME, column_of, state, state_counts
from tuiapp.view.run_values import CONFIG, ambiguous_names, as_share, key_column, known_values, own_values, value_text
from tuiapp.view.table import Column, Figure

MOST = len(LETTERS)  # runs and groups compared at once
MOST_CELLS = 20  # of what a group came to
NOT_SET = "not set"
MINUS = "−"

LEAST_CELLS = 9
"""Least cells of a difference to a baseline."""

_NUMBER = re.compile(r"[+\-−]?[\d.]")


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    values: tuple[str, ...]

    @property
    def is_number(self) -> bool:
        """Whether its values are numbers, as far as they are known."""
        values = [value for value in self.values if value not in (MISSING, NOT_SET)]
        return bool(values) and all(_NUMBER.match(value) for value in values)


def compared(infos: Sequence[RunInfo]) -> list[Row]:
    """Returns what stands for runs that are compared: their groups, or the rows of the only group."""
    rows = fold(infos)
    return list(rows[0].rows) if len(rows) == 1 and isinstance(rows[0], RunGroup) else rows


def row_name(row: Row) -> str:
    """Returns a run's name or its id, a group's name or what those of its runs have in common; and how many it has."""
    if isinstance(row, RunInfo):
        return sanitize(row.name) or sanitize(row.directory.run_id)
    return join_words([name_of(row) or whose(row), plural(len(row.infos), "run")])


def differing(rows: Sequence[Row]) -> list[Line]:
    """Returns the configuration keys in which runs differ; runs with an unreadable run.toml are ignored."""
    infos = [info for row in rows for info in runs_of(row)]
    values = [known_values(info) for info in infos]
    lines, both = [], ambiguous_names(infos)
    for key in dict.fromkeys([*OPTIONS, *(key for value in values for key in value)]):
        texts = [value_text(value.get(key)) for value in values]
        # A key of run.toml may not apply to a run; a key that a script leaves out is a difference.
        lacks = key not in OPTIONS and any(info.facts.config and key not in info.facts.config for info in infos)
        if len({text for text in texts if text != MISSING}) + lacks > 1:
            if len(infos) > len(rows):
                texts = [value_range(runs_of(row), key_column(key)) for row in rows]
            unclear = key in both or (key in BY_NAME and any(key in own_values(info) for info in infos))
            lines.append(Line(sanitize(f"{CONFIG * unclear}{key}"), _in_words(texts)))
    return lines


def _in_words(texts: Sequence[str]) -> tuple[str, ...]:
    """Values without the directories of their paths, unless the directories are all that differs."""
    short = [without_directories(text) for text in texts]
    return tuple(sanitize(text, 60) or NOT_SET for text in (short if len({*short}) == len({*texts}) else texts))


_LOSS, _TEST_LOSS, _ACCURACY, _RATE = (KNOWN[name] for name in (LOSS, TEST_LOSS, TEST_ACCURACY, RATE))

_BEST_ACCURACY, _BEST_LOSS = f"best {_ACCURACY.label}", f"best {_TEST_LOSS.label}"

_RESULTS: dict[str, Figure[RunInfo]] = {
    _BEST_ACCURACY: Figure(
        lambda info: as_share(info.best_accuracy), lambda share: format_accuracy(share, 2), rises=True
    ),
    _BEST_LOSS: Figure(lambda info: info.summary.best_loss, _TEST_LOSS.format, rises=False),
    _TEST_LOSS.label: Figure(lambda info: info.summary.test_loss, _TEST_LOSS.format),
    _LOSS.label: Figure(lambda info: info.summary.loss, _LOSS.format),
    _RATE.label: Figure(lambda info: info.summary.examples_per_second, _RATE.format),
    "took": Figure(lambda info: info.summary.seconds, format_duration),
    "steps": Figure(lambda info: info.summary.steps, format_count),
    "epochs done": Figure(
        lambda info: info.summary.epochs, lambda epochs: format_count(None if epochs is None else round(epochs, 1))
    ),
}


def result_figures(rows: Iterable[Row]) -> dict[str, Figure[RunInfo]]:
    """Returns what is compared of runs; the best loss of an evaluation only if some run is best by that."""
    infos = [info for row in rows for info in runs_of(row)]
    hidden = set() if any(info.best_by == "loss" for info in infos) else {_BEST_LOSS}
    # What scripts evaluate on may be called otherwise.
    groups = {info.summary.evaluated_on for info in infos}
    group = sanitize(groups.pop(), 20) if len(groups) == 1 else "test"
    return {name.replace("test", group): figure for name, figure in _RESULTS.items() if name not in hidden}


def results(rows: Sequence[Row]) -> list[Line]:
    """Returns each run's results, of a group what `came_to` says, after the states."""
    states = tuple(state(row) if isinstance(row, RunInfo) else state_counts(row.infos, in_words=True) for row in rows)
    figures = [
        Line(name, tuple(came_to_row(row, figure, MOST_CELLS) for row in rows))
        for name, figure in result_figures(rows).items()
    ]
    marred = tuple(describe_blemishes(blemish for info in runs_of(row) for blemish in info.blemishes) for row in rows)
    blemishes = [Line("blemishes", tuple(words or MISSING for words in marred))] if any(marred) else []
    return [Line("state", states), *blemishes, *figures]


def objective_line(rows: Sequence[Row], objective: Objective | None) -> Line | None:
    """Returns what rows have of their objective; None if that is not known."""
    if objective is None or (figure := column_of(objective.sort).figure) is None:
        return None
    if split(objective.name)[1] in ACCURACIES:
        figure = replace(figure, words=_RESULTS[_BEST_ACCURACY].words)
    name = f"★ {sanitize(objective.name, 30)} {'↑' if objective.rises else '↓'}"
    return Line(name, tuple(came_to_row(row, figure, MOST_CELLS) for row in rows))


def against(column: Column[RunInfo], baseline: RunInfo) -> Column[RunInfo]:
    """Returns a column with differences to the baseline's results: "+0.9 pp", "−3.1 %"; the baseline has its own."""
    if part := column.part:

        def part_against(info: RunInfo) -> tuple[int, Column[RunInfo]]:
            return part(info)[0], against(part(info)[1], baseline)

        return replace(column, part=part_against, cell=lambda info: part_against(info)[1].cell(info))
    figure = column.figure
    if figure is None or (base := figure.value(baseline)) is None or (figure.is_relative and not base):
        return column

    def difference(info: RunInfo) -> float | None:
        if (value := figure.value(info)) is None:
            return None
        return (value - base) / abs(base) if figure.is_relative else value - base

    def amount(size: float) -> str:
        # Shares are said in per cent, their differences in points of it.
        return f"{100 * size:.1f} %" if figure.is_relative else figure.words(size).replace(" %", " pp")

    def words(value: float | None) -> str:
        if value is None or not math.isfinite(value):
            return MISSING
        return f"{MINUS if value < 0 else '+'}{amount(abs(value))}" if value else "="

    def cell(info: RunInfo) -> str:
        value = difference(info)
        return column.cell(info) if value is None or info.directory == baseline.directory else words(value)

    return replace(
        column,
        cell=cell,
        width=max(column.width, LEAST_CELLS),
        figure=Figure(difference, words, deviation=figure.deviation or amount, rises=figure.rises),
    )
