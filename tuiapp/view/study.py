"""A study as text: its trials, the best on top, and the objective against each swept key."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from tuiapp.trainers.config.files import no_space
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.secrets import mask_values
from tuiapp.trainers.contract.events import PRUNED
from tuiapp.trainers.contract.metrics import is_number
from tuiapp.trainers.experiments.study import Study, StudyDir
from tuiapp.trainers.state.known_metrics import metric
from tuiapp.trainers.state.objective import Objective, Spread, guess
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.trainers.state.text import MISSING, fit, format_duration, format_percent, sanitize
from tuiapp.view.axes import axis_labels, log_labels
from tuiapp.view.chart import LEFT_CELLS, Chart, cell_at, frame
from tuiapp.view.groups import Row, RunGroup, counted_of, fold, runs_of
from tuiapp.view.run_list import objective_words
from tuiapp.view.run_values import differing_keys, key_column, known_value
from tuiapp.view.table import Column

ROWS = 8
"""Rows of a slice."""
SEED = "seed"
LEAST_FACTORS, FACTOR = 3, 10.0
"""Values at least, and how many times the least the greatest is, where they may be apart by factors."""
FAR = 100.0
"""How many times the least value the greatest is where values are drawn by factors."""
LOG = " (log)"
MEASURED: dict[str, tuple[str, ...]] = {"scale": ("devices",), "shootout": ("backend",)}
"""Kind of study that goes through no values → the keys in which its runs differ."""
KIND_WORDS = {"scale": "scaling study", "shootout": "shoot-out"}


@dataclass(frozen=True, slots=True)
class Trial:
    info: RunInfo
    values: dict[str, object]
    """The values of the swept keys."""
    objective: float | None

    @property
    def state(self) -> str:
        return PRUNED if is_pruned(self.info) else self.info.status


class Point(NamedTuple):
    """A trial with a value, or those that differ in their seed alone."""

    values: Mapping[str, object]
    state: str
    came_to: Sequence[float]

    @property
    def mean(self) -> float:
        return math.fsum(self.came_to) / len(self.came_to)


@dataclass(frozen=True, slots=True)
class StudyState:
    """What is known of a study, or of the runs of a group that is none."""

    name: str
    keys: tuple[str, ...]
    """The swept keys."""
    objective: Objective | None
    trials: tuple[Trial, ...]
    """The best first; then those without a value, by those of their keys."""
    study: Study | None = None
    """None of a group."""
    kind: str = "group"
    """grid, search, scale, shootout, or group."""
    ended: str = ""
    """How a search ended, or why it waits, in words."""
    log_keys: frozenset[str] = frozenset()
    """The keys whose values are apart by factors."""

    @property
    def drawn_keys(self) -> Sequence[str]:
        """Returns the keys that the objective is drawn against: seeds are repetitions."""
        return [key for key in self.keys if key != SEED] or self.keys

    @property
    def ended_trials(self) -> int:
        """Number of trials that have ended, however they did."""
        return sum(not trial.info.is_live for trial in self.trials)

    @property
    def best(self) -> Trial | None:
        """The best of those that are completed; None if none is."""
        return next(
            (trial for trial in self.trials if trial.state == "completed" and trial.objective is not None), None
        )


def is_pruned(info: RunInfo) -> bool:
    """Whether a search has given a run up."""
    return info.status == "stopped" and info.reason.startswith(PRUNED)


def read_study_state(place: StudyDir, infos: Sequence[RunInfo] | None = None) -> StudyState:
    """Reads a study of any kind, or a group of runs; raises StudyError if there is neither, or it is damaged."""
    infos = place.infos() if infos is None else infos
    study = place.read() if place.exists() or not infos else None
    kind = study.kind if study else "group"
    keys = [*(study.axes if study else ()), *MEASURED.get(kind, ())] or differing_keys(infos)
    objective = (study and study.objective) or guess(infos)
    trials = [
        Trial(info, {key: known_value(info, key) for key in keys}, objective.value(info) if objective else None)
        for info in infos
    ]
    sign = -1.0 if objective and objective.rises else 1.0

    def place_of(trial: Trial) -> tuple[object, ...]:
        value = trial.objective
        return value is None, sign * value if value is not None else 0.0, [*map(_order, trial.values.values())]

    ended = place.how_it_ended()
    waits = no_space(place.runs_dir) if study and study.search and not ended else ""
    return StudyState(
        name=place.name,
        keys=tuple(keys),
        objective=objective,
        trials=tuple(sorted(trials, key=place_of)),
        study=study,
        kind=kind,
        ended=sanitize(ended.reason if ended else waits and f"waits: {waits}"),
        log_keys=frozenset({*(_log_keys(study) if study else ()), *_by_factors(keys, trials)}),
    )


def _order(value: object) -> tuple[int, float, str]:
    return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, str(value))


def _log_keys(study: Study) -> list[str]:
    try:
        return [axis.key for axis in study.read_axes() if axis.log or "log:" in axis.text]
    except ConfigError:
        return []


def _by_factors(keys: Sequence[str], trials: Sequence[Trial]) -> list[str]:
    """Returns the keys whose values are apart more evenly by factors than by differences."""
    chosen = []
    for key in keys:
        values = sorted({float(value) for trial in trials if is_number(value := trial.values[key]) and value > 0})
        if len(values) >= LEAST_FACTORS and values[-1] >= FACTOR * values[0]:
            gaps = [(b - a, math.log(b / a)) for a, b in pairwise(values)]
            plain, by_factor = (max(apart) / min(apart) for apart in zip(*gaps, strict=True))
            chosen += [key] if by_factor < plain else []
    return chosen


def heading(state: StudyState) -> str:
    """Says what a study is, and how far it has come."""
    counts = Counter(trial.state for trial in state.trials)
    states = ", ".join(f"{count} {name}" for name, count in counts.items()) or "no run yet"
    search = state.study.search if state.study else None
    kind = KIND_WORDS.get(state.kind, state.kind)
    if search:
        kind = f"search of {search.trials} trials ({search.sampler}, {search.pruner} pruning)"
    infos = [trial.info for trial in state.trials]
    by = f" · best by {objective_words(state.objective, infos)}" if state.objective else ""
    ended = f" · {state.ended}" if state.ended else ""
    return f"{state.name} · {kind} · {states}{by}{ended}"


def trial_columns(state: StudyState) -> list[Column[Trial]]:
    """Returns the columns of a study's table."""
    shown = metric(state.objective.name) if state.objective else None

    def objective(trial: Trial) -> str:
        return shown.format(trial.objective) if shown and trial.objective is not None else MISSING

    def of_key(key: str) -> Column[Trial]:
        column = key_column(key)
        return Column(column.title, column.width, lambda trial: column.cell(trial.info), 3, most=column.most)

    title = sanitize(state.objective.name, 24) if state.objective else "OBJECTIVE"
    best = state.best
    return [
        Column("", 1, lambda trial: "★" if trial is best else "", 0),
        Column(title, max(9, len(title)), objective, 1),
        Column("STATE", 9, lambda trial: trial.state, 2, left=True),
        *map(of_key, state.keys),
        Column("STEPS", 7, lambda trial: f"{trial.info.summary.steps:,}", 5),
        Column("TOOK", 7, lambda trial: format_duration(trial.info.summary.seconds), 6),
        Column("RUN", 12, lambda trial: sanitize(trial.info.directory.run_id), 4, left=True, most=60),
    ]


def ranked_rows(state: StudyState) -> list[Row]:
    """Returns the runs, the best first; those that differ in their seed alone are one row, by their mean."""
    rows = fold([trial.info for trial in state.trials])
    if len(rows) == 1 and isinstance(only := rows[0], RunGroup) and not only.is_alike:
        rows = [*only.rows]
    objective = state.objective
    if objective is None:
        return rows

    def standing(row: Row) -> tuple[bool, float]:
        """Sorts rows: those that have completed come first, as no other is the best."""
        counted = counted_of(row)
        spread = Spread.of(map(objective.value, counted))
        is_whole = spread is not None and any(info.status == "completed" for info in counted)
        return not is_whole, math.inf if spread is None else (-spread.mean if objective.rises else spread.mean)

    return sorted(rows, key=standing)


def points(state: StudyState) -> list[Point]:
    """Returns what trials came to, a point for each row that has a value, the best first."""
    trial_of, drawn = {trial.info.directory: trial for trial in state.trials}, []
    for row in ranked_rows(state):
        parts = [row.counted] if isinstance(row, RunGroup) and row.is_alike else [[info] for info in runs_of(row)]
        for infos in parts:
            trials = [trial_of[info.directory] for info in infos]
            if came_to := [trial.objective for trial in trials if trial.objective is not None]:
                drawn.append(Point(trials[0].values, trials[0].state, came_to))
    return drawn


def importance_of(state: StudyState) -> dict[str, float]:
    """Returns how much each key matters; Optuna works it out in a process of its own."""
    # Imported late: it brings the launcher.
    from tuiapp.trainers.experiments.sweep import importances

    completed = [point for point in points(state) if point.state == "completed"]
    trials = [({key: point.values[key] for key in state.drawn_keys}, point.mean) for point in completed]
    return importances(trials, bool(state.objective and state.objective.rises), state.log_keys)


def draw_slice(state: StudyState, key: str, width: int, rows: int = ROWS, importance: float | None = None) -> list[str]:
    """Draws the objective of each trial against a key: a number's along the axis, of words at a place for each.

    Of trials that differ in their seed alone the mean is drawn, and the range.
    """
    objective = state.objective
    drawn_points = [point for point in points(state) if point.values.get(key) is not None]
    places = [point.values[key] for point in drawn_points]
    if not places or objective is None:
        return [fit(f"{sanitize(key)}: no trial has a value yet", width).rstrip()]
    columns, unit = max(10, width - LEFT_CELLS - 1), metric(objective.name).unit
    values = sorted({value for point in drawn_points for value in point.came_to})
    ends = list(dict.fromkeys((values[0], values[-1])))
    # Losses that fall over decades would all lie on the axis.
    tall = values[0] > 0 and values[-1] / values[0] > FAR
    labels = (log_labels if tall else axis_labels)(ends, unit)
    numbers = [place for place in places if is_number(place)]
    words = sorted(set(map(str, places))) if len(numbers) < len(places) else []
    log = key in state.log_keys and not words and min(numbers) > 0
    xs = [float(words.index(str(place))) if words else _at(place, log=log) for place in places]
    bottom, top = _at(values[0], log=tall), _at(values[-1], log=tall)
    chart = Chart(
        x_range=(0.0, max(1.0, len(words) - 1.0)) if words else _spread(min(xs), max(xs)),
        y_range=_spread(bottom, top),
        y_ticks=list(zip(dict.fromkeys((bottom, top)), labels, strict=True)),
    )
    room = max(3, columns // max(1, len(words)) - 1)
    by_word = [(float(number), fit(sanitize(word), room).strip()) for number, word in enumerate(words)]
    chart.x_ticks = by_word or [(_at(x, log=log), f"{x:.4g}") for x in dict.fromkeys((min(numbers), max(numbers)))]
    drawn = [list(line) for line in frame(chart, columns, rows)]
    across = [LEFT_CELLS + cell_at(x, chart.x_range, columns) for x in xs]

    def row_of(value: float) -> int:
        return rows - 1 - cell_at(_at(value, log=tall), chart.y_range, rows)

    for column, point in zip(across, drawn_points, strict=True):
        for row in range(row_of(max(point.came_to)), row_of(min(point.came_to)) + 1) if len(point.came_to) > 1 else ():
            drawn[row][column] = "│"
    best = next((point for point in drawn_points if point.state == "completed"), None)
    for column, point in zip(across, drawn_points, strict=True):
        row = row_of(point.mean)
        if drawn[row][column] != "★":
            drawn[row][column] = "★" if point is best else "·" if point.state == PRUNED else "●"
    weight = f" · importance {format_percent(importance)}" if importance is not None else ""
    title = f"{sanitize(objective.name, 40)}{LOG * tall} by {sanitize(key)}{LOG * log}{weight}"
    return [fit(title, width).rstrip(), *("".join(line).rstrip() for line in drawn)]


def _spread(low: float, high: float) -> tuple[float, float]:
    """Returns limits of an axis; a single value is in the middle."""
    return (low, high) if low < high else (low - 1, high + 1)


def _at(x: object, *, log: bool) -> float:
    assert isinstance(x, int | float)
    return math.log10(x) if log else float(x)


def study_facts(state: StudyState) -> dict[str, object]:
    """Returns a study as JSON has it."""
    study, search, objective = state.study, state.study and state.study.search, state.objective
    return {
        "study": state.name,
        "kind": state.kind,
        "keys": mask_values(study.axes) if study and study.axes else dict.fromkeys(state.keys),
        "metric": objective.name if objective else None,
        "maximize": objective.rises if objective else None,
        "trials_asked": search.trials if search else len(state.trials),
        "trials_ended": state.ended_trials,
        "ended": state.ended or None,
        "best": state.best.info.directory.run_id if state.best else None,
        "trials": [
            {
                "run": trial.info.directory.run_id,
                "name": trial.info.about.name,
                "state": trial.state,
                "objective": trial.objective,
                "values": trial.values,
                "steps": trial.info.summary.steps,
                "seconds": trial.info.summary.seconds,
            }
            for trial in state.trials
        ],
    }
