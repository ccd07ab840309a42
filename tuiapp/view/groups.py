"""Groups in a list of runs: those that the user put into one, and those that differ in their seed alone."""

from __future__ import annotations

import hashlib
import re
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from os.path import commonprefix
from typing import Any, TypeAlias, cast

import msgspec
from msgspec.structs import replace as replace_fields

from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.objective import Objective, Spread
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.trainers.state.text import MISSING, format_metric, plural, sanitize
from tuiapp.view.run_list import NEWEST, STATE, brief, meant_column, order, standing
from tuiapp.view.run_values import own_values
from tuiapp.view.table import Column, Figure, in_order

MOST_CELLS, NARROW_CELLS = 22, 12
"""Most cells of a column that a group's mean and deviation widen: with and without the name of the best run."""

MEASURED = 50
"""Groups whose cells make a column wider."""

MOST_TEXT = 18
"""Most cells of a list of texts in which a group's runs differ."""

LEAST_NAME = 4
"""Characters of whose result it is."""

LEAST_COMMON = 3
"""Characters in which texts begin alike for that to be said of them."""

OPEN, CLOSED, INDENT = "▾ ", "▸ ", "  "

_SEED = re.compile(r"(?:^|\s)--?seed[=\s]\s*\S+")
_SEED_IN_NAME = re.compile(r"(?:^|[\s,]+)seed=\S+")


@dataclass(frozen=True)
class RunGroup:
    """A group has two runs or more."""

    key: str
    """The group's key: the same while runs come and go, and in the next session."""
    name: str
    """The name that the user gave it; "" if only the seed tells its runs apart."""
    rows: tuple[Row, ...]
    is_alike: bool
    """Whether its runs differ in their seed alone: the means of what they came to say something."""

    @cached_property
    def infos(self) -> tuple[RunInfo, ...]:
        """Returns the group's runs, in the order of its rows."""
        return tuple(info for row in self.rows for info in runs_of(row))

    @cached_property
    def counted(self) -> Sequence[RunInfo]:
        """Returns the runs whose results make the group's: the completed ones, all while none has completed."""
        return [info for info in self.infos if info.status == "completed"] or self.infos


Row: TypeAlias = RunInfo | RunGroup


@dataclass(frozen=True, slots=True)
class ListRow:
    """A row of a list in which groups are folded: a run, or a group."""

    infos: Sequence[RunInfo]
    """The run, or the group's runs."""
    group: RunGroup | None = None
    depth: int = 0
    """In how many open groups it is."""
    is_open: bool = False

    @property
    def info(self) -> RunInfo | None:
        """The run; None of a group."""
        return None if self.group else self.infos[0]

    @property
    def id(self) -> RunDir | str:
        """Identifies the row while its values change."""
        return self.group.key if self.group else self.infos[0].directory


def spread_words(spread: Spread, figure: Figure[Any]) -> str:
    """Formats a mean and its deviation as "98.1 ± 0.2 %", what is the same of all as it is."""
    mean = figure.words(spread.mean)
    if not spread.deviation:
        return mean
    short = figure.deviation or ("{:.2g}".format if figure.words is format_metric else figure.words)
    deviation = short(spread.deviation)
    unit = next((unit for unit in (" %", " pp") if mean.endswith(unit) and deviation.endswith(unit)), "")
    return f"{mean.removesuffix(unit)} ± {deviation}"


def runs_of(row: Row) -> Sequence[RunInfo]:
    """Returns a group's runs, or the run."""
    return row.infos if isinstance(row, RunGroup) else (row,)


def counted_of(row: Row) -> Sequence[RunInfo]:
    """Returns the runs whose results make a group's, or the run."""
    return row.counted if isinstance(row, RunGroup) else (row,)


def alike(row: Row) -> list[RunGroup]:
    """Returns the groups in a row, itself included, whose runs differ in their seed alone."""
    return [leaf for leaf in _leaves([row]) if isinstance(leaf, RunGroup)]


def are_alike(infos: Iterable[RunInfo]) -> bool:
    """Whether runs differ in their seed at most."""
    return len({_but_for_seed(info) for info in infos}) == 1


def fold(infos: Sequence[RunInfo]) -> list[Row]:
    """Puts the runs of a group into one row, at the place of the first, and so those that differ in seed alone."""
    keys = [(info.about.group, _but_for_seed(info)) for info in infos]
    parts: dict[tuple[str, str], list[RunInfo]] = {}
    for key, info in zip(keys, infos, strict=True):
        parts.setdefault(key, []).append(info)
    kinds = Counter(group for group, _ in parts)
    by_seed = {key for key, part in parts.items() if len(part) > 1 and len(set(map(_seed, part))) > 1}
    rows: list[Row | str] = []
    named: dict[str, list[Row]] = {}
    for key, info in zip(keys, infos, strict=True):
        group, part, row = key[0], parts[key], cast(Row, info)
        if key in by_seed:
            if info is not part[0]:
                continue
            row = RunGroup("/".join(key), "", tuple(part), is_alike=True)
        if group not in named:
            rows.append(group or row)
        if group:
            named.setdefault(group, []).append(row)
    return [_named_group(row, named[row], is_alike=kinds[row] == 1) if isinstance(row, str) else row for row in rows]


def _named_group(name: str, rows: Sequence[Row], *, is_alike: bool) -> Row:
    only = rows[0] if len(rows) == 1 else None
    if isinstance(only, RunInfo):
        return only
    return RunGroup(name, name, only.rows if only else tuple(rows), is_alike)


def _but_for_seed(info: RunInfo) -> str:
    """Returns a digest of what a run does: the same of two that differ in their seed alone, or in their GPUs."""
    if info.config is None:
        return info.directory.run_id
    values = tuple((key, repr(value)) for key, value in own_values(info).items() if key != "seed")
    return _digest(info.config, values)


@lru_cache(8192)
def _digest(config: RunConfig, values: tuple[tuple[str, str], ...]) -> str:
    arguments = _SEED.sub("", config.arguments).strip()
    what = replace_fields(config, seed=0, device_ids=(), arguments=arguments, values=""), sorted(values)
    return hashlib.blake2s(msgspec.json.encode(what), digest_size=6).hexdigest()


def _seed(info: RunInfo) -> Hashable:
    """Returns all that a run has of seeds: the configuration's, its own value's, and its arguments'."""
    config, value = info.config, own_values(info).get("seed")
    arguments = tuple(_SEED.findall(config.arguments)) if config and config.arguments else ()
    return config.seed if config else None, repr(value), arguments


def arrange(
    infos: Sequence[RunInfo], by: str | Column[RunInfo], *, reverse: bool, live_first: bool | None = None
) -> list[Row]:
    """Folds runs and sorts the rows as `order` does: groups by their mean, one of different runs as its first row.

    A group of different runs that has all of them is not folded: the list is that of its rows.
    """
    rows = fold(order(infos, by, reverse=reverse, live_first=live_first))
    if len(rows) == 1 and isinstance(only := rows[0], RunGroup) and not only.is_alike:
        rows = list(only.rows)
    column = meant_column(by, infos)
    return _sorted(rows, column, reverse, column.name == NEWEST if live_first is None else live_first)


def _sorted(rows: Iterable[Row], column: Column[RunInfo], reverse: bool, live_first: bool) -> list[Row]:
    inner = [
        replace(row, rows=tuple(_sorted(row.rows, column, reverse, live_first))) if isinstance(row, RunGroup) else row
        for row in rows
    ]
    if not any(isinstance(row, RunGroup) for row in inner):
        return inner
    by_key: Column[Row] = Column("", 0, str, key=lambda row: _key(row, column), falls=column.falls)
    ranked = in_order(inner, by_key, reverse=reverse)
    if part := column.part:
        ranked = sorted(ranked, key=lambda row: part(runs_of(row)[0])[0])
    return sorted(ranked, key=lambda row: min(map(standing, runs_of(row)))) if live_first else ranked


def _key(row: Row, column: Column[RunInfo]) -> Any:
    assert column.key is not None
    if isinstance(row, RunInfo):
        return column.key(row)
    if column.name == NEWEST:
        return max((key for info in row.infos if (key := column.key(info)) is not None), default=None)
    figure = column.figure
    if figure and row.is_alike and (spread := Spread.of(map(figure.value, row.counted))):
        return (0, spread.mean, "")
    return next((key for inner in row.rows if (key := _key(inner, column)) is not None), None)


def listed(rows: Iterable[Row], is_open: Callable[[RunGroup], bool], depth: int = 0) -> list[ListRow]:
    """Returns the rows that are shown: groups, and what is in the open ones."""
    shown: list[ListRow] = []
    for row in rows:
        if isinstance(row, RunInfo):
            shown.append(ListRow((row,), depth=depth))
        else:
            opened = is_open(row)
            shown.append(ListRow(row.infos, row, depth, opened))
            shown += listed(row.rows, is_open, depth + 1) if opened else ()
    return shown


def stars(rows: Sequence[Row], shown: Iterable[ListRow], objective: Objective) -> dict[RunDir | str, str]:
    """Returns a star for the best of all, or for the closed group that it is in, and a lesser one for an open group's.

    Runs that differ in seed alone count as one, with their mean.
    """
    best, signs = best_row(rows, objective), dict[RunDir | str, str]()
    for row in shown:
        here = row.group or row.infos[0]
        if best is not None and (here is best or (not row.is_open and any(leaf is best for leaf in _leaves([here])))):
            signs[row.id] = "★"
        if row.group and row.is_open and (inner := best_row(row.group.rows, objective)) and inner is not best:
            signs.setdefault(inner.key if isinstance(inner, RunGroup) else inner.directory, "☆")
    return signs


def _leaves(rows: Iterable[Row]) -> list[Row]:
    """Returns the runs, and the groups that differ in seed alone, in rows and in the groups among them."""
    leaves: list[Row] = []
    for row in rows:
        leaves += [row] if isinstance(row, RunInfo) or row.is_alike else _leaves(row.rows)
    return leaves


def best_row(
    rows: Iterable[Row], objective: Objective, value: Callable[[RunInfo], float | None] | None = None
) -> Row | None:
    """Returns the best run, or group of runs that differ in seed alone; None if none is better than another.

    `value` is what the objective is of, by default its metric.
    """
    spreads = [(Spread.of(map(value or objective.value, counted_of(row))), row) for row in _leaves(rows)]
    return objective.best_of(
        (spread.mean, counted_of(row)[0].status, row) for spread, row in spreads if spread is not None
    )


def has_best(rows: Iterable[Row], objective: Objective) -> Row | None:
    """Returns which of these rows is the best, or the group of different runs that has it; None as `best_row`."""
    rows = list(rows)
    best = best_row(rows, objective)
    return next((row for row in rows if any(leaf is best for leaf in _leaves([row]))), None)


def refreshed(row: Row, infos: Mapping[RunDir, RunInfo]) -> Row:
    """Returns a row with what is known by now of its runs."""
    if isinstance(row, RunInfo):
        return infos[row.directory]
    return replace(row, rows=tuple(refreshed(inner, infos) for inner in row.rows))


def whose(row: Row) -> str:
    """Returns what a run is called, or what runs that differ in seed alone are called but for that."""
    return brief(row) if isinstance(row, RunInfo) else _SEED_IN_NAME.sub("", brief(row.infos[0]))


def came_to(group: RunGroup, figure: Figure[RunInfo], most: int = sys.maxsize) -> str:
    """Says what a group's runs came to: of those that differ in seed alone mean and deviation.

    Of others, which no mean describes, it is the best and whose, where the figure is the best of each run, or else from
    the least to the greatest. Of a name that is too long for `most` characters the end is said.
    """
    if (spread := Spread.of(map(figure.value, group.counted))) is None:
        return MISSING
    if group.is_alike:
        return spread_words(spread, figure)
    best = None if figure.rises is None else best_row(group.rows, Objective("", figure.rises), figure.value)
    if best is not None:
        result, who = came_to_row(best, figure), whose(best)
        if (room := most - len(result) - 1) < LEAST_NAME:
            return result
        return f"{result} {who if len(who) <= room else '…' + who[1 - room :]}"
    return range_words([value for info in group.counted if (value := figure.value(info)) is not None], figure.words)


def range_words(values: Sequence[float], words: Callable[[float], str]) -> str:
    """Formats the least and the greatest of values as "0.1–0.4", equal ones as one."""
    least, greatest = (words(min(values)), words(max(values))) if values else (MISSING, MISSING)
    return least if least == greatest else f"{least}–{greatest}"


def came_to_row(row: Row, figure: Figure[RunInfo], most: int = sys.maxsize) -> str:
    """Returns what a row came to: of a group as `came_to`, of a run its value."""
    return came_to(row, figure, most) if isinstance(row, RunGroup) else figure.words(figure.value(row))


def grouped(column: Column[RunInfo], shown: Sequence[ListRow], most: int = MOST_CELLS) -> Column[ListRow]:
    """Returns a column for a list with groups: of results what `came_to` says, of keys their range."""
    cells: dict[RunDir | str, str] = {}
    is_tree, groups = column.name == STATE, [row.id for row in shown if row.group is not None]
    # All of them would be what a long list costs.
    measured = {*groups[:MEASURED]}

    def text(row: ListRow) -> str:
        if row.group is None:
            return column.cell(row.infos[0])
        if row.id not in cells:
            cells[row.id] = group_cell(column, row.group, most)
        return cells[row.id]

    def branch(row: ListRow) -> str:
        sign = INDENT if row.group is None else OPEN if row.is_open else CLOSED
        return f"{INDENT * row.depth}{sign}{text(row)}"

    return Column(
        column.title,
        column.width,
        branch if is_tree and groups else text,
        column.rank,
        column.left,
        max(column.most, MOST_CELLS if is_tree else most) if groups else column.most,
        name=column.name,
        falls=column.falls,
        widens=lambda row: row.id in measured if row.group else bool(column.most or is_tree),
    )


def group_cell(column: Column[RunInfo], group: RunGroup, most: int = sys.maxsize) -> str:
    """Says what the runs of a group have in a column, about `most` characters."""
    if column.part:
        column = column.part(group.infos[0])[1]
    if column.together:
        return column.together(group.infos)
    if column.name == "name" and (name := name_of(group)):
        return name
    if column.name == "name" and not any(info.name for info in group.infos):
        return plural(len(group.infos), "seed")
    return came_to(group, column.figure, most) if column.figure else value_range(group.infos, column)


def name_of(group: RunGroup) -> str:
    """Returns what a group is called, or what its runs are but for their seed; "" if nothing."""
    names = {_SEED_IN_NAME.sub("", sanitize(info.name)) for info in group.infos}
    return sanitize(group.name) or (names.pop() if len(names) == 1 else "")


def value_range(infos: Sequence[RunInfo], column: Column[RunInfo]) -> str:
    """Says what runs have in a column: "0.1", "0–4", "adam, sgd", "5 values"."""
    assert column.key is not None
    # As few cells as possible: these are what a list of many groups costs.
    by_key = {column.key(info): info for info in infos}
    if len(by_key) == 1:
        return column.cell(infos[0])
    keys = [key for key in by_key if key is not None]
    if all(isinstance(key, int | float) or (isinstance(key, tuple) and key[0] == 0) for key in keys):
        least, most = column.cell(by_key[min(keys)]), column.cell(by_key[max(keys)])
        if least == most or len(f"{least}–{most}") <= MOST_TEXT:
            return least if least == most else f"{least}–{most}"
    cells = list(dict.fromkeys(column.cell(info) for info in by_key.values()))
    is_text = any(isinstance(key, str) or (isinstance(key, tuple) and key[0] == 1) for key in keys)
    if is_text and len(begin := commonprefix(cells)) >= LEAST_COMMON:  # noqa: RUF071 (of their characters)
        return f"{begin}…"
    text = ", ".join(cell for cell in cells if cell != MISSING)
    return text if len(text) <= MOST_TEXT else plural(len(cells), "value")
