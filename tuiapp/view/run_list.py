"""A list of runs: columns, order and filter. The same on the screen and on the command line."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from tuiapp.trainers.config.catalog import BACKENDS, takes
from tuiapp.trainers.config.script import data_name, subject
from tuiapp.trainers.contract.metrics import LOSS, RATE, TEST_ACCURACY, TEST_LOSS
from tuiapp.trainers.state.known_metrics import KNOWN
from tuiapp.trainers.state.objective import Objective
from tuiapp.trainers.state.signs import BLEMISH, SIGNS
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.trainers.state.text import (
    MISSING,
    format_count,
    format_duration,
    format_seconds,
    join_words,
    sanitize,
    without_directories,
)
from tuiapp.view.run_values import (
    Comparison,
    as_share,
    differing_keys,
    is_constant,
    key_column,
    names_of,
    sort_key,
    unknown_name,
    value_of,
)
from tuiapp.view.table import Column, Figure, in_order, told

NEWEST = "started"
"""The column that runs are sorted by at first."""


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
    place = f" {info.place}" if info.place else ""
    return f"{SIGNS[state_name(info)].symbol}{BLEMISH if info.blemishes else ''} {state_name(info)}{place}"


def devices(info: RunInfo) -> str:
    """Returns number and kind of devices: "4 GPU", "2 CPU"."""
    if info.config is None:
        return MISSING
    return f"{info.config.devices} {'GPU' if info.config.platform == 'cuda' else 'CPU'}"


def _device_order(info: RunInfo) -> tuple[int, str] | None:
    return (info.config.devices, info.config.platform) if info.config else None


def dataset(info: RunInfo) -> str:
    """Returns the data set; of a file its name without directories."""
    if info.config is None:
        return MISSING
    return sanitize(without_directories(data_name(info.config)), 80) or MISSING


def model(info: RunInfo) -> str:
    """Returns the model, of the user's own its file without directories, and its name; or the script's name."""
    return sanitize(without_directories(subject(info.config)), 80) if info.config else MISSING


def started(info: RunInfo) -> str:
    """Returns the launch time, local: "20 Nov 10:15", or with the year instead of the time of day."""
    if info.started is None:
        return MISSING
    try:
        moment, this_year = time.localtime(info.started), time.localtime().tm_year
        return time.strftime("%d %b %H:%M" if moment.tm_year == this_year else "%d %b  %Y", moment)
    except (OverflowError, ValueError, OSError):
        return MISSING


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _backend(info: RunInfo) -> str:
    return info.config.backend if info.config else ""


def _run_id(info: RunInfo) -> str:
    return info.directory.run_id


def title(info: RunInfo) -> str:
    """Returns a run's name, if it has one, and its id."""
    return join_words([sanitize(info.name, 100), sanitize(info.directory.run_id)])


def brief(info: RunInfo) -> str:
    """Returns a run's name, or else its id."""
    return sanitize(info.name, 40) or sanitize(info.directory.run_id)


def tags(info: RunInfo) -> str:
    """Returns a run's tags, separated by commas; "" for none."""
    return sanitize(", ".join(info.about.tags))


def _words(
    name: str, width: int, rank: int, cell: Callable[[RunInfo], str], key: Callable[[RunInfo], str]
) -> Column[RunInfo]:
    return Column(name, width, cell, rank, left=True, name=name, key=lambda info: key(info) or None)


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
) -> Column[RunInfo]:
    figure: Figure[RunInfo] = Figure(lambda info: _finite(value(info)), words, is_relative)
    key = lambda info: sort_key(figure.value(info))  # noqa: E731
    return Column(title, width, lambda info: words(value(info)), rank, name=name, key=key, falls=falls, figure=figure)


def _so_far(info: RunInfo, value: float) -> float | None:
    """Returns a figure of what was done; None of a run that waits for its first attempt, which would lower a mean."""
    return value if value or info.status != "queued" else None


_LOSS, _ACCURACY, _RATE = KNOWN[LOSS], KNOWN[TEST_ACCURACY], KNOWN[RATE]

COLUMNS = (
    _words("state", 12, 0, state, lambda info: info.status),
    _words("name", 20, 1, lambda info: sanitize(info.name, 100) or MISSING, lambda info: info.name),
    _words("backend", 12, 2, lambda info: _backend(info) or MISSING, _backend),
    _words("model", 8, 3, model, lambda info: subject(info.config) if info.config else ""),
    _words("dataset", 13, 7, dataset, lambda info: data_name(info.config) if info.config else ""),
    Column("devices", 7, devices, 8, name="devices", key=_device_order),
    _figure("accuracy", "best acc", 8, 1, lambda info: as_share(info.best_accuracy), _ACCURACY.format),
    _figure("loss", _LOSS.label, 7, 5, lambda info: info.summary.loss, _LOSS.format, falls=False),
    _figure("speed", "ex/s", 8, 6, lambda info: info.summary.examples_per_second, _RATE.format, is_relative=True),
    Column(NEWEST, 12, started, 4, left=True, name=NEWEST, key=lambda info: _finite(info.started), falls=True),
    _figure("took", "took", 7, 9, lambda info: _so_far(info, info.summary.seconds), format_duration, is_relative=True),
    _figure(
        "epoch_time", "s/epoch", 8, 13, lambda info: info.epoch_seconds, format_seconds, falls=False, is_relative=True
    ),
    _figure("steps", "steps", 9, 10, lambda info: _so_far(info, info.summary.steps), format_count),
    _figure("epochs_done", "epochs done", 11, 14, lambda info: info.summary.epochs or None, format_count),
    _figure("best_loss", "best loss", 9, 12, lambda info: info.summary.best_loss, KNOWN[TEST_LOSS].format, falls=False),
    _words("run", 44, 11, lambda info: sanitize(_run_id(info)), _run_id),
)

BY_NAME = {column.name: column for column in COLUMNS}

TAG, STATE, KIND = "tag", "state", "blemish"
"""What a filter's words may begin with, beside the names of keys and metrics."""

WHAT_RUNS = ("backend", "model", "dataset", "devices")
"""Columns that are left out where all runs have the same."""


def column_of(name: str) -> Column[RunInfo]:
    """Returns a column by its name, or that of a configuration key or metric."""
    return BY_NAME.get(name) or key_column(name)


def columns_of(
    infos: Sequence[RunInfo], added: Sequence[str] = (), removed: Collection[str] = ()
) -> list[Column[RunInfo]]:
    """Returns the columns that tell these runs apart: what is the same of all is left out, keys that differ come in.

    Of users' own scripts what none of them reports is left out, too.

    The user's own choice counts for more: the columns `added`, which are the last to be left out for want of room,
    and those `removed`. The state is always there.
    """
    hidden = {one.name for one in _constant(infos)} | ({"name"} - {one.name for one in told([BY_NAME["name"]], infos)})
    if infos and all(info.config is not None and not BACKENDS[info.config.backend].builtin for info in infos):
        figures = {one.name: one.figure for one in COLUMNS if one.figure is not None}
        hidden |= {name for name, one in figures.items() if all(one.value(info) is None for info in infos)}
    hidden = (hidden | {*removed}) - {STATE, *added}
    keys = [*differing_keys(infos), *(name for name in added if name not in BY_NAME)]
    own = [
        replace(key_column(key, rank=1 if key in added else 3), left=_is_text(infos, key))
        for key in dict.fromkeys(keys)
        if key not in hidden
    ]
    columns = [replace(one, rank=1) if one.name in added else one for one in COLUMNS if one.name not in hidden]
    place = 1 + max(n for n, one in enumerate(columns) if one.name in ("state", "name", *WHAT_RUNS))
    return [*columns[:place], *own, *columns[place:]]


def _is_text(infos: Iterable[RunInfo], name: str) -> bool:
    values = (value_of(info, name) for info in infos)
    return isinstance(next((value for value in values if value is not None), None), str)


def shared(infos: Sequence[RunInfo]) -> list[str]:
    """Returns what the columns that `columns_of` leaves out say of all these runs."""
    return [words for one in _constant(infos) if (words := one.cell(infos[0])) != MISSING]


def _constant(infos: Sequence[RunInfo]) -> list[Column[RunInfo]]:
    return [BY_NAME[name] for name in WHAT_RUNS if is_constant(infos, BY_NAME[name])]


def best_first(objective: Objective) -> tuple[str, bool]:
    """Returns the column that shows an objective, and whether it is reversed for the best run to be first."""
    return objective.sort, column_of(objective.sort).falls != objective.rises


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
    found = [info for info in infos if all(_holds(info, one) for one in comparisons)]
    return [info for info in found if _has_all(words_of(info), words)] if words else found


def unknown_names(infos: Iterable[RunInfo], text: str) -> list[str]:
    """Says which names of a filter's comparisons no run has; nothing of `:`, which texts have too."""
    infos = list(infos)
    compared = [one for word in text.split() if (one := Comparison.of(word)) is not None and one.how != ":"]
    return [unknown_name(one.name, (*BY_NAME, *names_of(infos))) for one in compared if not _is_name(one.name, infos)]


def _read_filter(text: str, infos: Sequence[RunInfo]) -> tuple[list[str], list[Comparison]]:
    words, comparisons = list[str](), list[Comparison]()
    for word in text.split():
        one = Comparison.of(word)
        if one is None or (one.how == ":" and not _is_name(one.name, infos)):
            words.append(word.lower())
        elif one.value:
            comparisons.append(one)
    return words, comparisons


def _has_all(text: str, words: Iterable[str]) -> bool:
    return all(word in text for word in words)


def _is_name(name: str, infos: Sequence[RunInfo]) -> bool:
    return name in (TAG, STATE, KIND) or any(listed_value(info, name) is not None for info in infos)


def _holds(info: RunInfo, one: Comparison) -> bool:
    if one.name == TAG:
        has = one.value.lower() in {tag.lower() for tag in info.about.tags}
        return has if one.how in (":", "=") else one.how == "!=" and not has
    if one.name == KIND:
        has = any(one.value.lower() in (blemish.kind, "any") for blemish in info.summary.blemishes)
        return has if one.how in (":", "=") else one.how == "!=" and not has
    if one.name == STATE and one.how in (":", "="):
        return one.value.lower() in (info.status, state_name(info))
    return one.holds(listed_value(info, one.name))


def listed_value(info: RunInfo, name: str) -> object:
    """Returns a run's value of a configuration key, a metric or a column; None for none."""
    value = value_of(info, name)
    if value is None and (column := BY_NAME.get(name)) is not None and column.key is not None:
        return column.figure.value(info) if column.figure else column.key(info)
    return value


def order(infos: Sequence[RunInfo], by: str = NEWEST, *, reverse: bool = False) -> list[RunInfo]:
    """Sorts runs, newest first, by a column (stable), those without a value last; live ones are above all.

    What waits in the queue is on top, the next one first.
    """
    if by == NEWEST:
        # Their order is more precise than the clock's seconds.
        ranked = list(infos)[::-1] if reverse else list(infos)
    else:
        ranked = in_order(infos, column_of(by), reverse=reverse)
    return sorted(ranked, key=standing)


def standing(info: RunInfo) -> tuple[bool, int, bool]:
    """Returns what comes before any order: the queue's, then whether a run is live."""
    return info.place is None, info.place or 0, not info.is_live
