"""A list of runs: columns, order and filter. The same on the screen and on the command line."""

from __future__ import annotations

import math
import time
from calendar import timegm
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tuiapp.trainers.config.catalog import BACKENDS, takes
from tuiapp.trainers.config.run_config import OPTIONS
from tuiapp.trainers.config.script import data_name, subject
from tuiapp.trainers.contract.metrics import ACCURACIES, LOSS, LOSSES, RATE, TEST_ACCURACY, TEST_LOSS, split
from tuiapp.trainers.state.known_metrics import KNOWN
from tuiapp.trainers.state.objective import Objective, Objectives
from tuiapp.trainers.state.signs import BLEMISH, SIGNS
from tuiapp.trainers.state.summary import RunInfo, remaining_s
from tuiapp.trainers.state.text import (
    MISSING,
    format_bytes,
    format_count,
    format_duration,
    format_metric,
    format_seconds,
    join_words,
    plural,
    progress_bar,
    sanitize,
    without_directories,
)
from tuiapp.view.run_values import (
    CONFIG,
    GREATEST,
    LEAST,
    METRIC,
    MOST_DIFFERING,
    Comparison,
    ambiguous_names,
    as_share,
    has_value,
    is_constant,
    key_column,
    keys_apart,
    kind_of,
    metric_column,
    names_of,
    own_metrics,
    same_names,
    sort_key,
    unknown_name,
    value_of,
)
from tuiapp.view.table import Column, Figure, in_order, nonempty

BEST = "best"
"""Name of the column of what runs are best by, where that is not the same for all."""

MOST_BEST = 18
"""Most cells of the best value."""

DISK = "disk"
"""Name of the column of what runs take on the disk, which is measured where it is asked for."""

BAR_CELLS = 8
"""Cells of the bar of a run's progress."""

NEWEST = "started"
"""Name of the column that runs are sorted by at first."""


def is_stalled(info: RunInfo) -> bool:
    """Whether a run is live and none of its ranks makes progress."""
    return info.status == "running" and bool(info.reason)


def state_name(info: RunInfo) -> str:
    """Returns the run's state in a word."""
    if is_stalled(info):
        return "stalled"
    return "held" if info.waiting is not None and info.waiting.held else info.status


def state(info: RunInfo) -> str:
    """Returns the run's state with its sign."""
    in_queue = f" {info.place}" if info.place else ""
    return f"{SIGNS[state_name(info)].symbol}{BLEMISH if info.blemishes else ''} {state_name(info)}{in_queue}"


def devices(info: RunInfo) -> str:
    """Returns number and kind of devices: "4 GPU", "2 CPU"."""
    if info.config is None:
        return MISSING
    return f"{info.config.devices} {'GPU' if info.config.platform == 'cuda' else 'CPU'}"


def dataset(info: RunInfo) -> str:
    """Returns the data set; of a file its name without directories."""
    if info.config is None:
        return MISSING
    return sanitize(without_directories(data_name(info.config)), 80) or MISSING


def model(info: RunInfo) -> str:
    """Returns the model, of the user's own its file without directories, and its name; or the script's name."""
    return sanitize(without_directories(subject(info.config)), 80) if info.config else MISSING


def started_at(info: RunInfo) -> float | None:
    """Returns when a run began; None of one that still waits for that in a queue."""
    if info.begun is None and info.status == "queued":
        return None
    if info.begun is None and not info.is_live:
        # It never began, and its files may be a copy's: its name has when it was made.
        with suppress(ValueError):
            return float(timegm(time.strptime(info.directory.run_id[:15], "%Y%m%dT%H%M%S")))
    return _finite(info.started)


def progress(info: RunInfo) -> float | None:
    """Returns the share of its steps that a running one has taken; None while not known."""
    runs = info.status == "running" and info.total_steps > 0
    return min(1.0, info.summary.steps / info.total_steps) if runs else None


def eta(info: RunInfo) -> float | None:
    """Returns the seconds that a run needs for its remaining steps, without evaluations; None while not known."""
    return None if info.status != "running" or is_stalled(info) else remaining_s(info)


def started(info: RunInfo) -> str:
    """Returns the time of its start, local: "20 Nov 10:15", or with the year instead of the time of day."""
    if (seconds := started_at(info)) is None:
        return MISSING
    try:
        moment, this_year = time.localtime(seconds), time.localtime().tm_year
        return time.strftime("%d %b %H:%M" if moment.tm_year == this_year else "%d %b  %Y", moment)
    except (OverflowError, ValueError, OSError):
        return MISSING


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _backend(info: RunInfo) -> str:
    return info.config.backend if info.config else ""


def title(info: RunInfo) -> str:
    """Returns a run's name, if it has one, and its id."""
    return join_words([sanitize(info.name, 100), sanitize(info.directory.run_id)])


def brief(info: RunInfo) -> str:
    """Returns a run's name, or else its id."""
    return sanitize(info.name, 40) or sanitize(info.directory.run_id)


def journal(info: RunInfo) -> str:
    """Returns the size of a run's journal, with a sign if it is large."""
    return f"{BLEMISH} " * info.has_large_journal + format_bytes(info.journal_bytes)


def tags(info: RunInfo) -> str:
    """Returns a run's tags, separated by commas; "" for none."""
    return sanitize(", ".join(info.about.tags))


def _text_column(
    name: str,
    width: int,
    rank: int,
    cell: Callable[[RunInfo], str],
    key: Callable[[RunInfo], str],
    **fields: Any,
) -> Column[RunInfo]:
    return Column(name, width, cell, rank, left=True, name=name, key=lambda info: key(info) or None, **fields)


def _figure(
    name: str,
    title: str,
    width: int,
    rank: int,
    value: Callable[[RunInfo], float | None],
    words: Callable[[float | None], str],
    *,
    falls: bool = True,
    is_relative: bool = False,
    most: int = 0,
    rises: bool | None = None,
) -> Column[RunInfo]:
    figure: Figure[RunInfo] = Figure(lambda info: _finite(value(info)), words, is_relative, rises=rises)
    return Column(
        title,
        width,
        lambda info: words(value(info)),
        rank,
        most=most,
        name=name,
        key=lambda info: sort_key(figure.value(info)),
        falls=falls,
        figure=figure,
    )


def _so_far(info: RunInfo, value: float) -> float | None:
    """Returns a figure of what was done; None of a run that waits for its first attempt, which would lower a mean."""
    return value if value or info.status != "queued" else None


def state_counts(infos: Iterable[RunInfo], *, in_words: bool = False) -> str:
    """Says how many runs are in which state: "✓ 3 completed", or of several states "✓ 3  ● 1"; or that in words."""
    counts = Counter(state_name(info) for info in infos)
    states = sorted(counts, key=list(SIGNS).index)
    if in_words or len(counts) == 1:
        return " · ".join(f"{'' if in_words else SIGNS[name].symbol + ' '}{counts[name]} {name}" for name in states)
    return "  ".join(f"{SIGNS[name].symbol} {counts[name]}" for name in states)


def _bar(infos: Sequence[RunInfo]) -> str:
    """Returns how far live runs are, all of which have ended as far as they will."""
    if not any(progress(info) is not None for info in infos):
        return ""
    done = [(progress(info) or 0.0) if info.is_live else 1.0 for info in infos]
    return progress_bar(sum(done) / len(done), BAR_CELLS)


def _longest_eta(infos: Sequence[RunInfo]) -> str:
    left = [seconds for info in infos if (seconds := eta(info)) is not None]
    return format_duration(max(left)) if left else ""


def _disk(infos: Sequence[RunInfo]) -> str:
    sizes = [info.disk_bytes for info in infos if info.disk_bytes is not None]
    return format_bytes(sum(sizes)) if sizes else MISSING


def _while_live(
    name: str,
    title: str,
    width: int,
    together: Callable[[Sequence[RunInfo]], str],
    key: Callable[[RunInfo], float | None],
    **fields: Any,
) -> Column[RunInfo]:
    """Returns the column of what only live runs have."""
    return Column(
        title,
        width,
        lambda info: together([info]),
        1,
        name=name,
        key=key,
        together=together,
        comes=lambda infos: any(key(info) is not None for info in infos),
        **fields,
    )


def _named(info: RunInfo) -> str:
    """Returns a run's name, or else how its id ends."""
    return sanitize(info.name, 100) or f"…{'-'.join(sanitize(info.directory.run_id).split('-')[-2:])}"


_LOSS, _ACCURACY, _RATE = KNOWN[LOSS], KNOWN[TEST_ACCURACY], KNOWN[RATE]

COLUMNS = (
    _text_column("state", 12, 0, state, lambda info: info.status, together=state_counts),
    _text_column(
        "name", 10, 1, _named, lambda info: info.name, most=20, comes=lambda infos: any(info.name for info in infos)
    ),
    _text_column("backend", 12, 4, lambda info: _backend(info) or MISSING, _backend),
    _text_column("model", 8, 3, model, lambda info: subject(info.config) if info.config else ""),
    _text_column("dataset", 13, 8, dataset, lambda info: data_name(info.config) if info.config else ""),
    Column(
        "devices",
        7,
        devices,
        9,
        name="devices",
        key=lambda info: (info.config.devices, info.config.platform) if info.config else None,
    ),
    _figure("accuracy", "best acc", 8, 1, lambda info: as_share(info.best_accuracy), _ACCURACY.format, rises=True),
    _figure("loss", _LOSS.label, 7, 6, lambda info: info.summary.loss, _LOSS.format, falls=False),
    _figure("speed", "ex/s", 8, 7, lambda info: info.summary.examples_per_second, _RATE.format, is_relative=True),
    Column(
        NEWEST,
        12,
        started,
        5,
        left=True,
        name=NEWEST,
        key=started_at,
        falls=True,
        together=lambda infos: started(max(infos, key=lambda info: started_at(info) or 0)),
    ),
    _figure("steps", "steps", 7, 2, lambda info: _so_far(info, info.summary.steps), format_count, most=11),
    _figure("took", "took", 7, 2, lambda info: _so_far(info, info.summary.seconds), format_duration, is_relative=True),
    _while_live("progress", "progress", BAR_CELLS, _bar, progress, left=True, falls=True),
    _while_live("eta", "ETA", 7, _longest_eta, eta),
    _figure(
        "epoch_time", "s/epoch", 8, 14, lambda info: info.epoch_seconds, format_seconds, falls=False, is_relative=True
    ),
    _figure("epochs_done", "epochs done", 11, 15, lambda info: info.summary.epochs or None, format_count),
    _figure(
        "best_loss",
        "best loss",
        9,
        13,
        lambda info: info.summary.best_loss,
        KNOWN[TEST_LOSS].format,
        falls=False,
        rises=False,
    ),
    Column(
        "journal",
        11,
        journal,
        16,
        name="journal",
        key=lambda info: info.journal_bytes,
        falls=True,
        comes=lambda infos: any(info.has_large_journal for info in infos),
    ),
    Column(
        DISK,
        8,
        lambda info: _disk([info]),
        17,
        name=DISK,
        key=lambda info: info.disk_bytes,
        falls=True,
        together=_disk,
        comes=lambda infos: False,
    ),
    _text_column(
        "run",
        44,
        12,
        lambda info: sanitize(info.directory.run_id),
        lambda info: info.directory.run_id,
        together=lambda infos: MISSING,
    ),
)

BY_NAME = {column.name: column for column in COLUMNS}

RESULTS = COLUMNS.index(BY_NAME["accuracy"])
"""Number of the first column that says what a run came to."""

KEYS, METRICS, REST = 4, 11, 16
"""Ranks of the columns of keys, of scripts' metrics, and of the keys that tell fewer runs apart."""

MOST_TITLE = 26
"""Cells of a full name as a column's title."""

TAG, STATE, KIND = "tag", "state", "blemish"
"""What a filter's words may begin with, beside the names of keys and metrics."""

WHAT_RUNS = ("backend", "model", "dataset", "devices")
"""Columns that are left out where all runs have the same."""


def column_of(name: str) -> Column[RunInfo]:
    """Returns one of the list's own columns by its name, or that of a key or metric by its full name."""
    kind, bare = kind_of(name)
    if name in BY_NAME:
        return BY_NAME[name]
    return metric_column(bare, kind) if kind and kind != CONFIG else key_column(bare)


def is_column(name: str) -> bool:
    """Whether `column_of` knows a name, as one that was kept."""
    return name in BY_NAME or bool(kind_of(name)[0])


def meant(name: str, infos: Sequence[RunInfo]) -> str:
    """Returns what a user's name means among runs: a column of the list's own, or else the full name of a value.

    A configuration key comes before a metric; "" if no run has either.
    """
    if name in BY_NAME:
        return name
    if kind_of(name)[0]:
        return name if has_value(infos, name) else ""
    kind = next((kind for kind in (CONFIG, METRIC) if has_value(infos, kind + name)), "")
    return (kind or CONFIG) + name if kind or any(key in OPTIONS for key in same_names(name)) else ""


def meant_column(by: str | Column[RunInfo], infos: Sequence[RunInfo]) -> Column[RunInfo]:
    """Returns a column, or that of a user's name among runs."""
    return by if isinstance(by, Column) else column_of(meant(by, infos) or by)


def best_column(objectives: Objectives) -> Column[RunInfo] | None:
    """Returns the column of what runs are best by, where that differs with each one's metric; None without results."""
    if len(distinct := objectives.distinct) < 2:
        return column_of(distinct[0].sort) if distinct else None
    parts = {objective: (number, _with_name(objective)) for number, objective in enumerate(distinct)}
    none: Column[RunInfo] = Column("", 0, lambda info: MISSING)

    def part(info: RunInfo) -> tuple[int, Column[RunInfo]]:
        return parts[objective] if (objective := objectives.of(info)) else (len(parts), none)

    def score(info: RunInfo) -> float | None:
        objective = objectives.of(info)
        value = objective.value(info) if objective else None
        return objective.comparable(value) * (1 if objective.rises else -1) if objective and value is not None else None

    return Column(
        BEST,
        8,
        lambda info: part(info)[1].cell(info),
        1,
        most=MOST_BEST,
        name=BEST,
        key=lambda info: sort_key(score(info)),
        falls=True,
        figure=Figure(score, format_metric),
        part=part,
    )


def _with_name(objective: Objective) -> Column[RunInfo]:
    """Returns the column of an objective whose cells name the metric; an accuracy has its own unit."""
    column, name = column_of(objective.sort), sanitize(split(objective.name)[1], MOST_BEST // 2)
    figure = column.figure
    if figure is None or split(objective.name)[1] in ACCURACIES:
        return column

    def words(value: float | None) -> str:
        return MISSING if value is None else f"{name} {figure.words(value)}"

    return replace(
        column,
        cell=lambda info: words(figure.value(info)),
        figure=replace(figure, words=words, deviation="{:.2g}".format),
    )


def both_kinds(names: Iterable[str], infos: Sequence[RunInfo]) -> list[str]:
    """Says of names that are those of a key and of a metric which they mean."""
    unlisted = [name for name in dict.fromkeys(names) if name not in BY_NAME]
    both = ambiguous_names(infos) if unlisted else ()
    text = "{0} is here the configuration key; the metric is " + METRIC + "{0}"
    return [text.format(sanitize(name)) for name in unlisted if name in both]


def columns_of(
    infos: Sequence[RunInfo],
    added: Sequence[str] = (),
    removed: Collection[str] = (),
    first: Sequence[Column[RunInfo]] = (),
) -> list[Column[RunInfo]]:
    """Returns the columns that tell these runs apart: what is the same of all is left out, keys that differ come in.

    Of users' own scripts what they report comes in, and what none of them reports is left out. Of equal columns there
    is one.

    The user's own choice counts for more: the columns `added`, and those that are `first`, as what the runs are sorted
    by, are the last to be left out for want of room, and those `removed` do not come in. The state is always there.
    """
    hidden = {column.name for column in _constant(infos)}
    hidden |= {column.name for column in COLUMNS if column.comes and not column.comes(infos)}
    if infos and all(info.config is not None and not BACKENDS[info.config.backend].builtin for info in infos):
        figures = {column.name: column.figure for column in COLUMNS if column.figure is not None}
        hidden |= {name for name, figure in figures.items() if all(figure.value(info) is None for info in infos)}
    # What runs are best by is shown once.
    by_name = {column.name: column for column in first}
    best = {split(name)[1] for kind, name in map(kind_of, by_name) if kind in (GREATEST, LEAST)}
    hidden |= {"accuracy"} if BEST in by_name or not best.isdisjoint(ACCURACIES) else set()
    hidden |= {"best_loss"} if BEST in by_name or not best.isdisjoint(LOSSES) else set()
    wanted = dict.fromkeys((*by_name, *added), 1)
    apart = keys_apart(infos)
    most_apart = sorted(apart, key=lambda key: -apart[key])[:MOST_DIFFERING]
    ranks = {CONFIG + key: KEYS if key in most_apart else REST for key in apart}
    ranks |= {METRIC + name: METRICS for name in own_metrics(infos) if _varies(infos, METRIC + name)}
    names = dict.fromkeys(name for name in (*ranks, *wanted) if name not in BY_NAME)
    values = [replace(by_name.get(name) or column_of(name), rank=(ranks | wanted)[name]) for name in names]
    listed = [replace(column, rank=min(column.rank, wanted.get(column.name, column.rank))) for column in COLUMNS]
    hidden = (hidden | {*removed}) - {STATE, *wanted}
    shown = [column for column in (*listed, *values) if column.name not in hidden]
    equal = equal_columns(sorted(shown, key=lambda column: column.rank), infos, wanted)
    both = ambiguous_names(infos)
    titled = [_titled(column, both, infos) for column in shown if column.name not in equal]
    return sorted(titled, key=_place)


def _place(column: Column[RunInfo]) -> int:
    """Returns where a column is: what runs, its keys, what it is best by, results, a script's own metrics, the id."""
    kind = kind_of(column.name)[0]
    if not kind and column.name != BEST:
        number = COLUMNS.index(BY_NAME[column.name])
        return (0 if number < RESULTS else 3 if column.name != "run" else 5) * len(COLUMNS) + number
    return {CONFIG: 1, METRIC: 4}.get(kind, 2) * len(COLUMNS)


def _titled(column: Column[RunInfo], both: Collection[str], infos: Iterable[RunInfo]) -> Column[RunInfo]:
    """Returns the column of a key or metric with its full name as title where its name means something else, too."""
    kind, name = kind_of(column.name)
    if not kind:
        return column
    if (name in both or name in BY_NAME) and kind in (CONFIG, METRIC):
        title = sanitize(column.name, MOST_TITLE)
        column = replace(column, title=title, width=max(column.width, len(title)), most=max(column.most, len(title)))
    values = (value_of(info, column.name) for info in infos)
    return replace(column, left=isinstance(next((value for value in values if value is not None), None), str))


def equal_columns(
    columns: Iterable[Column[RunInfo]], infos: Sequence[RunInfo], wanted: Collection[str] = ()
) -> set[str]:
    """Returns the names of columns that say of each of several runs what one before them says."""
    if len(infos) < 2:
        return set()
    kept, equal = dict[str, list[Column[RunInfo]]](), set[str]()
    for column in columns:
        if column.figure is None and not kind_of(column.name)[0]:
            continue
        # Almost all differ in the first row.
        alike = kept.setdefault(column.cell(infos[0]), [])
        if column.name not in wanted and any(
            all(column.cell(info) == earlier.cell(info) for info in infos) and nonempty([earlier], infos)
            for earlier in alike
        ):
            equal.add(column.name)
        else:
            alike.append(column)
    return equal


def _varies(infos: Sequence[RunInfo], name: str) -> bool:
    """Whether a single run, or not all of several, have the same value."""
    first = value_of(infos[0], name)
    return len(infos) < 2 or any(value_of(info, name) != first for info in infos)


def shared(infos: Sequence[RunInfo]) -> list[str]:
    """Returns what the columns that `columns_of` leaves out say of all these runs."""
    return [cell for column in _constant(infos) if (cell := column.cell(infos[0])) != MISSING]


def _constant(infos: Sequence[RunInfo]) -> list[Column[RunInfo]]:
    return [BY_NAME[name] for name in WHAT_RUNS if is_constant(infos, BY_NAME[name])]


def objective_words(objective: Objective, infos: Iterable[RunInfo]) -> str:
    """Says what runs are best by, and of how many data sets and models they are if those differ."""
    ranked = [info for info in infos if info.config and objective.value(info) is not None]
    counts = ((len({of(info) for info in ranked} - {MISSING}), name) for of, name in _COMPARABLE)
    unlike = [plural(count, name) for count, name in counts if count > 1]
    return f"{objective}{' of ' * bool(unlike)}{' and '.join(unlike)}"


def objectives_words(objectives: Objectives, infos: Iterable[RunInfo]) -> str:
    """Says the objectives of runs of several kinds of data."""
    of_kind: dict[Objective, list[RunInfo]] = {objective: [] for objective in objectives.distinct}
    for info in infos:
        if objective := objectives.of(info):
            of_kind[objective].append(info)
    return ", ".join(objective_words(*kind) for kind in of_kind.items())


_COMPARABLE = ((dataset, "data set"), (model, "model"))


def words_of(info: RunInfo) -> str:
    """Returns the lower-case text that a filter's words are searched in."""
    config = info.config
    about = info.about
    facts = [info.directory.run_id, info.name, *about.tags, about.note, info.status, info.reason, devices(info)]
    facts += [about.group, info.host, info.where]
    if config:
        facts += [config.backend, subject(config), data_name(config), config.platform]
        facts += [config.optimizer] if takes(config.backend, "optimizer") else []
    return " ".join(facts).lower()


def choose(infos: Iterable[RunInfo], text: str) -> list[RunInfo]:
    """Returns the runs in which every word of a filter is found, and every comparison holds; all for an empty one.

    `tag:WORD` is a whole tag, `state:WORD` the state, `blemish:nan` a kind of blemish, `blemish:any` every one;
    `lr<0.01` compares a configuration key or metric. What is not yet written to its end, as `lr<`, filters nothing.
    """
    infos = list(infos)
    words, comparisons = _read_filter(text, infos)
    chosen = [info for info in infos if all(_holds(info, comparison) for comparison in comparisons)]
    return [info for info in chosen if _has_all(words_of(info), words)] if words else chosen


def compared_names(text: str) -> list[str]:
    """Returns the names in a filter's comparisons; not those before `:`, which texts have too."""
    comparisons = filter(None, map(Comparison.of, text.split()))
    return [comparison.name for comparison in comparisons if comparison.how != ":"]


def unknown_names(infos: Sequence[RunInfo], text: str) -> list[str]:
    """Says which names of a filter's comparisons no run has."""
    unknown = [name for name in compared_names(text) if not _name(name, infos)]
    return [unknown_name(name, (*BY_NAME, *names_of(infos))) for name in unknown]


def _read_filter(text: str, infos: Sequence[RunInfo]) -> tuple[list[str], list[Comparison]]:
    words, comparisons = list[str](), list[Comparison]()
    for word in text.split():
        comparison = Comparison.of(word)
        name = _name(comparison.name, infos) if comparison else ""
        if comparison is None or (comparison.how == ":" and not name):
            words.append(word.lower())
        elif comparison.value:
            comparisons.append(replace(comparison, name=name))
    return words, comparisons


def _has_all(text: str, words: Iterable[str]) -> bool:
    return all(word in text for word in words)


def _name(name: str, infos: Sequence[RunInfo]) -> str:
    """Returns what a name in a filter means; "" if no run has that."""
    if name in (TAG, STATE, KIND):
        return name
    full = meant(name, infos)
    return full if any(listed_value(info, full) is not None for info in infos) else ""


def _holds(info: RunInfo, comparison: Comparison) -> bool:
    name, how, value = comparison.name, comparison.how, comparison.value.lower()
    if name in (TAG, KIND):
        kinds = (kind for blemish in info.blemishes for kind in (blemish.kind, "any"))
        has = value in {*(tag.lower() for tag in info.about.tags)} if name == TAG else value in kinds
        return has if how in (":", "=") else how == "!=" and not has
    if name == STATE and how in (":", "="):
        return value in (info.status, state_name(info))
    return comparison.holds(listed_value(info, name))


def listed_value(info: RunInfo, name: str) -> object:
    """Returns a run's value of one of the list's own columns, or of a key or metric by its full name; None for none."""
    if (column := BY_NAME.get(name)) is None:
        return value_of(info, name)
    if column.figure is not None:
        return column.figure.value(info)
    if name in WHAT_RUNS and info.config is not None and takes(info.config.backend, name):
        return getattr(info.config, name)
    return column.key(info) if column.key else None


def order(
    infos: Sequence[RunInfo],
    by: str | Column[RunInfo] = NEWEST,
    *,
    reverse: bool = False,
    live_first: bool | None = None,
) -> list[RunInfo]:
    """Sorts runs by a column (stable, newest first), those without a value last, of equal results completed ones first.

    With `live_first`, by default where none is sorted by but their start, what waits in the queue is on top, the next
    one first, then live ones.
    """
    column = meant_column(by, infos)
    if column.name == NEWEST and reverse:
        infos = infos[::-1]
    elif column.figure:
        infos = sorted(infos, key=lambda info: info.status != "completed")
    ranked = in_order(infos, column, reverse=reverse)
    if part := column.part:
        ranked = sorted(ranked, key=lambda info: part(info)[0])
    return sorted(ranked, key=standing) if (column.name == NEWEST if live_first is None else live_first) else ranked


def as_sorted(info: RunInfo, before: RunInfo) -> RunInfo:
    """Returns a run as it is sorted again: with what the user changed of it, the rest as it was before.

    One that waited in the queue is before those that still wait.
    """
    if info is before:
        return info
    in_queue = None if before.place is None else info.place or 0
    facts = before.facts if info.facts.config == before.facts.config else info.facts
    return replace(before, config=info.config, about=info.about, facts=facts, place=in_queue)


def standing(info: RunInfo) -> tuple[bool, int, bool]:
    """Returns what comes before any order: the queue's, then whether a run is live."""
    return info.place is None, info.place or 0, not info.is_live
