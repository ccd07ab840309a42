"""What a run has by name: the keys of its configuration and its results. Lists are sorted and filtered by them."""

from __future__ import annotations

import contextlib
import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from msgspec.structs import astuple

from tuiapp.trainers.config.catalog import takes
from tuiapp.trainers.config.options import format_value, suggest
from tuiapp.trainers.config.run_config import OPTIONS, RunConfig
from tuiapp.trainers.config.script_syntax import read_values
from tuiapp.trainers.config.secrets import MASK, is_secret, mask_values
from tuiapp.trainers.contract.metrics import accuracy_percent
from tuiapp.trainers.state.known_metrics import metric
from tuiapp.trainers.state.results import result_value, result_values
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.trainers.state.text import MISSING, format_fact, sanitize, without_directories
from tuiapp.view.table import Column, Figure

OF_EVERY_RUN = frozenset({"backend", "model", "dataset", "script", "devices", "platform"})
"""Keys that a list of runs has columns of its own for."""

GROUP = "group"
"""What a run belongs to, listed as if it were a key of its configuration."""

MOST_DIFFERING = 6
"""Columns of keys in which the listed runs differ."""

KEPT_TEXTS = 1024
"""Of a key's column: lists are drawn anew with each key that is pressed."""

MOST_CELLS = 18
"""Of a key's column."""


@cache
def _keys_of(backend: str) -> dict[str, None]:
    """Returns the keys that a backend uses, in their order."""
    return {key: None for key in OPTIONS if takes(backend, key) and key != "values"}


def own_values(info: RunInfo) -> dict[str, object]:
    """Returns a script's own configuration: the values that it was given, and what it says itself."""
    given: dict[str, object] = {}
    if info.config and info.config.values:
        with contextlib.suppress(ValueError):
            given.update(read_values(info.config.values))
    return {**given, **info.facts.config}


def default_keys(info: RunInfo) -> frozenset[str]:
    """Returns the keys of a script's own configuration that nobody has set: its library has very many."""
    return frozenset(info.facts.defaults)


def known_values(info: RunInfo) -> dict[str, object]:
    """Returns a run's configuration by key: what its script says of it, and the keys of run.toml that it uses."""
    config = info.config
    used = {key: getattr(config, key) for key in _keys_of(config.backend)} if config else {}
    group = {GROUP: info.about.group} if info.about.group else {}
    return {**group, **used, **own_values(info)}


def value_text(value: object) -> str:
    """Formats a value of `known_values`; a dash for none."""
    if value is None:
        return MISSING
    return format_value(value) if isinstance(value, bool | int | float | tuple) else format_fact(value)


@cache
def same_names(name: str) -> tuple[str, ...]:
    """Returns a name and what else it is called: `lr` is `learning_rate`, whoever writes it."""
    for key, option in OPTIONS.items():
        if name == key or name in option.aliases:
            return tuple(dict.fromkeys((name, key, *option.aliases)))
    return (name,)


def known_value(info: RunInfo, name: str) -> object:
    """Returns one of `known_values`, by its name or another that means the same; None for none."""
    if name == GROUP and info.about.group:
        return info.about.group
    config, own = info.config, own_values(info)
    keys = _keys_of(config.backend) if config else {}
    for one in same_names(name):
        value = own.get(one)
        if value is None and one in keys:
            value = getattr(config, one)
        if value is not None:
            return value
    return None


def value_of(info: RunInfo, name: str) -> object:
    """Returns a run's value of a configuration key or metric, None if it has none."""
    value = known_value(info, name)
    return result_value(info, name) if value is None else value


def names_of(infos: Iterable[RunInfo]) -> list[str]:
    """Returns the names of all values that some run has, in the order in which the runs have them."""
    names: dict[str, None] = {}
    for info in infos:
        names.update(dict.fromkeys(known_values(info)))
        names.update(dict.fromkeys(result_values(info)))
    return list(names)


@lru_cache(1024)
def key_column(name: str, rank: int = 0) -> Column[RunInfo]:
    """Returns the column of a configuration key or metric: numbers in their order, then texts in theirs."""
    of_metric = metric(name)

    def cell(info: RunInfo) -> str:
        value = known_value(info, name)
        if value is None:
            found = result_value(info, name)
            return of_metric.format(found) if isinstance(found, int | float) else sanitize(value_text(found), 80)
        return text_of(value) if isinstance(value, Hashable) else known_text(value)

    def known_text(value: object) -> str:
        if is_secret(name):
            return MASK
        value = mask_values({name: value})[name]
        short = f"{value:.6g}" if isinstance(value, float) else value_text(value)
        return sanitize(without_directories(short), 80) or MISSING

    # Runs have few values of a key.
    text_of = lru_cache(KEPT_TEXTS, typed=True)(known_text)

    def number(info: RunInfo) -> float | None:
        found = result_value(info, name) if known_value(info, name) is None else None
        if not isinstance(found, int | float) or isinstance(found, bool) or not math.isfinite(found):
            return None
        return as_share(found) if of_metric.unit == "share" else float(found)

    title = sanitize(name, MOST_CELLS)
    return Column(
        title,
        max(4, len(title)),
        cell,
        rank,
        most=MOST_CELLS,
        name=name,
        key=lambda info: sort_key(value_of(info, name)),
        falls=of_metric.rises,
        figure=Figure(number, of_metric.format),
    )


def as_share(value: float | None) -> float | None:
    """Returns an accuracy, which scripts report as a share or in per cent, as a share."""
    return accuracy_percent(value) / 100 if value is not None else None


def sort_key(value: object) -> tuple[int, float, str] | None:
    """Returns what rows are sorted by: numbers before texts; None for nothing."""
    if isinstance(value, bool | int | float):
        return (0, float(value), "") if math.isfinite(value) else None
    return None if value is None else (1, 0.0, value_text(value))


def differing_keys(infos: Sequence[RunInfo], most: int = MOST_DIFFERING) -> list[str]:
    """Returns the configuration keys in which runs differ, those first that tell most of them apart.

    A run that does not use a key of run.toml does not differ in it.
    """
    by_backend: dict[str, list[tuple[object, ...]]] = {}
    for info in infos:
        if info.config:
            by_backend.setdefault(info.config.backend, []).append(astuple(info.config))
    found: dict[str, Counter[object]] = {}
    for backend, configs in by_backend.items():
        used = _keys_of(backend).keys() - OF_EVERY_RUN
        for key, values in zip(RunConfig.__struct_fields__, zip(*configs, strict=True), strict=True):
            if key in used:
                counted = Counter(values) if len(set(values)) > 1 else Counter({values[0]: len(values)})
                found.setdefault(key, Counter()).update(counted)
    for info in infos:
        for key, value in own_values(info).items():
            if key in OF_EVERY_RUN:
                continue
            found.setdefault(key, Counter())[repr(value)] += 1
    if len(groups := Counter[object](info.about.group for info in infos)) > 1:
        found[GROUP] = groups
    apart = {key: counts.total() - max(counts.values()) for key, counts in found.items() if len(counts) > 1}
    first = [key for key in OPTIONS if key in apart] + [key for key in apart if key not in OPTIONS]
    chosen = sorted(first, key=lambda key: -apart[key])[:most]
    return [key for key in first if key in chosen]


def is_constant(infos: Sequence[RunInfo], column: Column[RunInfo]) -> bool:
    """Whether two runs or more have all the same in a column."""
    if len(infos) < 2:
        return False
    if column.key is not None and len({column.key(info) for info in infos}) == 1:
        return True
    first = column.cell(infos[0])
    return all(column.cell(info) == first for info in infos)


_COMPARISON = re.compile(r"([^<>=!:]+)(<=|>=|!=|<|>|=|:)(.*)")

_HOLDS: dict[str, Callable[[float, float], bool]] = {
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "=": lambda a, b: a == b,
    ":": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """`lr<0.01`, `test/accuracy>=0.9`, `state:failed`: a name, how it compares, and with what."""

    name: str
    how: str
    value: str

    @classmethod
    def of(cls, word: str) -> Comparison | None:
        """Returns what a word of a filter compares; None if it is a word to search for."""
        found = _COMPARISON.fullmatch(word)
        return cls(*found.groups()) if found else None

    def holds(self, known: object) -> bool:
        """Whether a run's value compares so; numbers with numbers, texts as a whole whatever the case of letters."""
        if known is None:
            return False
        try:
            number = float(self.value)
        except ValueError:
            number = math.nan
        if isinstance(known, int | float) and not isinstance(known, bool) and not math.isnan(number):
            return _HOLDS[self.how](float(known), number)
        same = value_text(known).lower() == self.value.lower()
        return same if self.how in ("=", ":") else self.how == "!=" and not same


def unknown_name(name: str, known: Iterable[str]) -> str:
    """Says that no listed run has a value of that name."""
    return f"no run has {sanitize(name)!r}.{suggest(name, known)}"
