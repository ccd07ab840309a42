"""A list of runs: columns, order and filter. The same on the screen and on the command line."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from trainers.config.catalog import takes
from trainers.config.script import data_name, subject
from trainers.contract.metrics import LOSS, RATE, TEST_ACCURACY, TEST_LOSS
from trainers.state.known_metrics import KNOWN
from trainers.state.signs import SIGNS
from trainers.state.summary import RunInfo
from trainers.state.text import (
    MISSING,
    format_count,
    format_duration,
    join_words,
    sanitize,
    without_directories,
)

_Key: TypeAlias = tuple[float, str]


@dataclass(frozen=True, slots=True)
class Column:
    name: str  # on the command line
    title: str
    width: int
    cell: Callable[[RunInfo], str]
    key: Callable[[RunInfo], _Key | None]  # None sorts last, in either direction
    rank: int  # the columns with the lowest ranks are kept when space is short
    falls: bool = False  # sorted in descending order by default
    left: bool = False


def is_stalled(info: RunInfo) -> bool:
    """Whether a run is live and none of its ranks makes progress."""
    return info.status == "running" and bool(info.reason)


def state_name(info: RunInfo) -> str:
    """Returns the run's state in a word."""
    return "stalled" if is_stalled(info) else info.status


def state(info: RunInfo) -> str:
    """Returns the run's state with its sign."""
    return f"{SIGNS[state_name(info)]} {state_name(info)}"


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


def started(info: RunInfo) -> str:
    """Returns the launch time, local: "20 Nov 10:15", or with the year instead of the time of day."""
    if info.started is None:
        return MISSING
    try:
        moment, this_year = time.localtime(info.started), time.localtime().tm_year
        return time.strftime("%d %b %H:%M" if moment.tm_year == this_year else "%d %b  %Y", moment)
    except (OverflowError, ValueError, OSError):
        return MISSING


def _number(value: float | None) -> _Key | None:
    return (value, "") if value is not None and math.isfinite(value) else None


def _text(value: str) -> _Key | None:
    return (0.0, value) if value else None


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


def _figure(
    name: str,
    title: str,
    width: int,
    value: Callable[[RunInfo], float | None],
    words: Callable[[float | None], str],
    rank: int,
    *,
    falls: bool = True,
) -> Column:
    return Column(
        name, title, width, lambda info: words(value(info)), lambda info: _number(value(info)), rank, falls=falls
    )


_LOSS, _ACCURACY, _RATE = KNOWN[LOSS], KNOWN[TEST_ACCURACY], KNOWN[RATE]

COLUMNS = (
    Column("state", "state", 12, state, lambda i: _text(i.status), 0, left=True),
    Column("name", "name", 20, lambda i: sanitize(i.name, 100) or MISSING, lambda i: _text(i.name), 1, left=True),
    Column("backend", "backend", 12, lambda i: _backend(i) or MISSING, lambda i: _text(_backend(i)), 2, left=True),
    Column("model", "model", 8, model, lambda i: _text(subject(i.config) if i.config else ""), 3, left=True),
    Column("dataset", "dataset", 13, dataset, lambda i: _text(data_name(i.config) if i.config else ""), 7, left=True),
    Column("devices", "devices", 7, devices, lambda i: _number(i.config.devices if i.config else None), 8),
    _figure("accuracy", "best acc", 8, lambda i: i.best_accuracy, _ACCURACY.format, 1),
    _figure("loss", _LOSS.label, 7, lambda i: i.summary.loss, _LOSS.format, 5, falls=False),
    _figure("speed", "ex/s", 8, lambda i: i.summary.examples_per_second, _RATE.format, 6),
    Column("started", "started", 12, started, lambda i: _number(i.started), 4, True, left=True),
    _figure("took", "took", 7, lambda i: i.summary.seconds, format_duration, 9),
    _figure("steps", "steps", 9, lambda i: i.summary.steps, format_count, 10),
    _figure("best_loss", "best loss", 9, lambda i: i.summary.best_loss, KNOWN[TEST_LOSS].format, 12, falls=False),
    Column(
        "run", "run", 44, lambda i: sanitize(i.directory.run_id), lambda i: _text(i.directory.run_id), 11, left=True
    ),
)

BY_NAME = {column.name: column for column in COLUMNS}

TAG = "tag:"

NEWEST = "started"  # default sort order


def words_of(info: RunInfo) -> str:
    """Returns the lower-case text that a filter's words are searched in."""
    config = info.config
    about = info.about
    facts = [info.directory.run_id, info.name, *about.tags, about.note, info.status, info.reason, devices(info)]
    facts += [info.host, info.where]
    if config:
        facts += [config.backend, subject(config), data_name(config), config.platform]
        facts += [config.optimizer] if takes(config.backend, "optimizer") else []
    return " ".join(facts).lower()


def choose(infos: Iterable[RunInfo], text: str) -> list[RunInfo]:
    """Returns the runs in which every word of a filter is found; all for an empty one. `tag:WORD` is a whole tag."""
    wanted = text.lower().split()
    return [info for info in infos if not wanted or _has_all(info, wanted)]


def _has_all(info: RunInfo, wanted: Sequence[str]) -> bool:
    text, own = words_of(info), {tag.lower() for tag in info.about.tags}
    return all(word.removeprefix(TAG) in own if word.startswith(TAG) else word in text for word in wanted)


def order(infos: Sequence[RunInfo], by: str = NEWEST, *, reverse: bool = False) -> list[RunInfo]:
    """Sorts runs, newest first, by a column (stable); live ones are on top, those without a value last."""
    column = BY_NAME[by]
    if by == NEWEST:
        # Their order is more precise than the clock's seconds.
        ranked = list(infos)[::-1] if reverse else list(infos)
    else:
        known = [(key, info) for info in infos if (key := column.key(info)) is not None]
        known.sort(key=lambda pair: pair[0], reverse=column.falls != reverse)
        ranked = [info for _, info in known] + [info for info in infos if column.key(info) is None]
    return sorted(ranked, key=lambda info: not info.is_live)
