"""What a run has by name: the keys of its configuration and its results. Lists are sorted and filtered by them.

A key and a metric may have the same name: a value's full name is `config.lr`, `metric.lr` (what it came to), `max.lr`
or `min.lr` (its greatest and least value).
"""

from __future__ import annotations

import contextlib
import json
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import islice

from msgspec.structs import astuple

from tuiapp.trainers.config.catalog import BACKENDS, takes
from tuiapp.trainers.config.files import read_limited
from tuiapp.trainers.config.options import format_value, suggest
from tuiapp.trainers.config.run_config import OPTIONS, RunConfig
from tuiapp.trainers.config.script_syntax import as_value, read_values, split_words
from tuiapp.trainers.config.secrets import Masked, mask_values
from tuiapp.trainers.contract.metrics import ACCURACIES, accuracy_percent, evaluation_of, is_number, loss_of, split
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.known_metrics import by_importance, format_accuracy, is_bookkeeping, metric
from tuiapp.trainers.state.objective import Objective, objective_names, result_value, result_values
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.trainers.state.text import MISSING, format_fact, sanitize, without_directories
from tuiapp.view.table import Column, Figure

OF_EVERY_RUN = frozenset({"backend", "model", "dataset", "script", "devices", "platform"})
"""Keys of run.toml that a list of runs has columns of its own for."""

NO_WORDS = frozenset({"arguments", "environment", "slurm", "output_pattern"}) | {
    key for key, option in OPTIONS.items() if option.text in ("directory", "weights", "program")
}
"""Keys of run.toml whose values are lines, patterns or paths: they differ, but tell nothing at a glance."""

GROUP = "group"
"""What a run belongs to, listed as if it were a key of its configuration."""

CONFIG, METRIC, GREATEST, LEAST = KINDS = ("config.", "metric.", "max.", "min.")
"""What full names begin with."""

MOST_DIFFERING = 6
"""Most keys in which runs differ that are shown."""

MAX_ENVIRONMENT_BYTES = 1 << 20

KEPT_TEXTS = 1024
"""Texts of a key's column that are cached: lists are drawn anew with each key that is pressed."""

SHORT = {"best test/accuracy": "best acc", "best test/loss": "best loss"}
"""Title of a metric's column → the shorter one that it has."""

MOST_CELLS = 18
"""Most cells of a key's column."""

MOST_ASKED = 100
"""Most runs that are looked at for the metrics that they report."""


@cache
def _keys_of(backend: str) -> dict[str, None]:
    """Returns the keys that a backend uses, in their order."""
    return {key: None for key in OPTIONS if takes(backend, key) and key != "values"}


def own_values(info: RunInfo) -> Mapping[str, object]:
    """Returns a script's own configuration, masked: the values that it was given, and what it says itself.

    Of one that says nothing it is what its arguments are: `--lr 0.1` is lr = 0.1.
    """
    config, said = info.config, mask_values(info.facts.config)
    if config is None or not (config.values or (config.arguments and not said)):
        return said
    return {**_read_values(config.values, "" if said else config.arguments), **said}


@lru_cache(KEPT_TEXTS)
def _read_values(values: str, arguments: str) -> dict[str, object]:
    """Returns what a script was given by name, in values and in arguments; what cannot be read is left out."""
    read: dict[str, object] = {}
    with contextlib.suppress(ValueError):
        words = split_words(arguments)
        for word, following in zip(words, [*words[1:], "--"], strict=True):
            name, equals, value = word.removeprefix("--").partition("=")
            if word.startswith("--") and name and "{" not in word + following:
                text = value if equals else "true" if following.startswith("--") else following
                read[name.replace("-", "_")] = as_value(text)
    with contextlib.suppress(ValueError):
        read.update(read_values(values))
    return mask_values(read)


def default_keys(info: RunInfo) -> frozenset[str]:
    """Returns the keys of a script's own configuration that nobody has set: its library has very many."""
    return frozenset(info.facts.defaults)


def known_values(info: RunInfo) -> dict[str, object]:
    """Returns a run's configuration, masked: what its script says of it, and the keys of run.toml that it uses."""
    config = info.config
    used = mask_values({key: getattr(config, key) for key in _keys_of(config.backend)}) if config else {}
    group = {GROUP: info.about.group} if info.about.group else {}
    return {**group, **used, **own_values(info)}


def value_text(value: object) -> str:
    """Formats a value of `known_values`; a dash for none."""
    if value is None:
        return MISSING
    if isinstance(value, Masked):
        return value
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
    config, of_script = info.config, own_values(info)
    keys = _keys_of(config.backend) if config else {}
    for key in same_names(name):
        value = of_script.get(key)
        if value is None and key in keys:
            value = mask_values({key: getattr(config, key)})[key]
        if value is not None:
            return value
    return None


def kind_of(name: str) -> tuple[str, str]:
    """Returns what a full name begins with, and the name after it; "" and the name if it is no full one."""
    kind = next((kind for kind in KINDS if name.startswith(kind) and name != kind), "")
    return kind, name.removeprefix(kind)


def value_of(info: RunInfo, name: str) -> object:
    """Returns a run's value by its full name, masked; None if it has none."""
    kind, bare = kind_of(name)
    if kind in (GREATEST, LEAST):
        return Objective(bare, kind == GREATEST).value(info)
    return known_value(info, bare) if kind == CONFIG else mask_values({bare: result_value(info, bare)})[bare]


def has_value(infos: Iterable[RunInfo], name: str) -> bool:
    """Whether some run has a value of that full name."""
    return any(value_of(info, name) is not None for info in infos)


def ambiguous_names(infos: Iterable[RunInfo]) -> frozenset[str]:
    """Returns the names of metrics by which configuration keys are called, too."""
    some = [*islice(infos, MOST_ASKED)]
    keys = {key for info in some for key in known_values(info)}
    metrics = {name for info in some for name in result_values(info)}
    return frozenset(name for name in metrics if not keys.isdisjoint(same_names(name)))


def names_of(infos: Iterable[RunInfo]) -> list[str]:
    """Returns the names of all values that some run has, in the order in which the runs have them."""
    return list(dict.fromkeys(name for info in infos for name in (*known_values(info), *result_values(info))))


@lru_cache(1024)
def metric_column(name: str, kind: str = METRIC) -> Column[RunInfo]:
    """Returns the column of what a metric came to, or of its best value: numbers come before texts."""
    full, rises = kind + name, metric(name).rises
    best = Objective(name, kind == GREATEST)
    words: Callable[[float | None], str] = format_accuracy if split(name)[1] in ACCURACIES else metric(name).format

    def cell(info: RunInfo) -> str:
        value = value_of(info, full)
        return words(value) if isinstance(value, int | float) else sanitize(value_text(value), 80)

    def number(info: RunInfo) -> float | None:
        value = value_of(info, full)
        return best.comparable(float(value)) if is_number(value) and math.isfinite(value) else None

    title = name if kind == METRIC else f"{'best' if best.rises == rises else kind.rstrip('.')} {name}"
    title = sanitize(SHORT.get(title, title), MOST_CELLS)
    return Column(
        title,
        max(4, len(title)),
        cell,
        most=MOST_CELLS,
        name=full,
        key=lambda info: sort_key(value_of(info, full) if (value := number(info)) is None else value),
        falls=rises if kind == METRIC else best.rises,
        figure=Figure(number, words, rises=None if kind == METRIC else best.rises),
    )


@lru_cache(1024)
def key_column(name: str, rank: int = 0) -> Column[RunInfo]:
    """Returns the column of a configuration key."""

    def cell(info: RunInfo) -> str:
        value = known_value(info, name)
        if name == "device_ids" and value:
            return gpu_numbers(info)
        return text_of(value) if isinstance(value, Hashable) else known_text(value)

    def known_text(value: object) -> str:
        short = f"{value:.6g}" if isinstance(value, float) else value_text(value)
        return sanitize(without_directories(short), 80) or MISSING

    # Runs have few values of a key.
    text_of = lru_cache(KEPT_TEXTS, typed=True)(known_text)

    title = sanitize(name, MOST_CELLS)
    return Column(
        title,
        max(4, len(title)),
        cell,
        rank,
        most=MOST_CELLS,
        name=CONFIG + name,
        key=lambda info: sort_key(known_value(info, name)),
    )


def gpu_numbers(info: RunInfo) -> str:
    """Returns the numbers of a run's GPUs on its machine, "0,3"; of one whose number is unknown how its id begins."""
    ids = info.config.device_ids if info.config else ()
    numbers = _numbers_of(info.directory) if any(not gpu.isdecimal() for gpu in ids) else {}
    return sanitize(",".join(numbers.get(gpu, gpu[:8]) for gpu in ids), 80) or MISSING


@lru_cache(KEPT_TEXTS)
def _numbers_of(run: RunDir) -> dict[str, str]:
    """Returns UUID → number of the GPUs of the machine that launched a run."""
    try:
        gpus = json.loads(read_limited(run.environment, MAX_ENVIRONMENT_BYTES))["gpus"]
        return {str(gpu["uuid"]): str(gpu["index"]) for gpu in gpus}
    except (OSError, ValueError, RecursionError, TypeError, KeyError):
        return {}


def as_share(value: float | None) -> float | None:
    """Returns an accuracy, which scripts report as a share or in per cent, as a share."""
    return accuracy_percent(value) / 100 if value is not None else None


def sort_key(value: object) -> tuple[int, float, str] | None:
    """Returns what rows are sorted by: numbers before texts; None for nothing."""
    if isinstance(value, bool | int | float):
        return (0, float(value), "") if math.isfinite(value) else None
    return None if value is None else (1, 0.0, value_text(value))


_PLAIN = re.compile(r"(?!\.{1,2}/)[\w.,:=+@-]{1,24}(?:/[\w.-]{1,24})?")
"""Matches a word, or a name with an owner as on a hub."""

_ID = re.compile(r"(?:[\w-]+-)?[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|[0-9a-f]{16,}", re.IGNORECASE)

_FILE = re.compile(r"(?:^|[_/.])(?:dir|directory|file|folder)$")


def _is_plain(key: str, values: Iterable[object]) -> bool:
    """Whether what runs have of a key tells them apart at a glance: numbers and words, no paths, patterns and ids."""
    if key in NO_WORDS or _FILE.search(key):
        return False
    texts = (value for value in values if isinstance(value, str))
    return all((not text or _PLAIN.fullmatch(text)) and not _ID.fullmatch(text) for text in texts)


def own_metrics(infos: Sequence[RunInfo]) -> list[str]:
    """Returns the numbers that scripts report beside the loss and the evaluation, the most important first."""
    scripts = [info for info in infos if info.config is not None and not BACKENDS[info.config.backend].builtin]
    names = objective_names(scripts[:MOST_ASKED])
    evaluations = {f"{script.summary.evaluated_on}/{last}" for script in scripts for last in ("loss", "accuracy")}
    shown = {loss_of(names), *evaluation_of(names)[1:], *evaluations}
    return by_importance((name for name in names if name not in shown and not is_bookkeeping(name)), "")


def differing_keys(infos: Sequence[RunInfo], most: int = MOST_DIFFERING) -> list[str]:
    """Returns the configuration keys in which runs differ, of many those that tell most of them apart."""
    apart = keys_apart(infos)
    chosen = sorted(apart, key=lambda key: -apart[key])[:most]
    return [key for key in apart if key in chosen]


def keys_apart(infos: Sequence[RunInfo]) -> dict[str, int]:
    """Returns the keys in which runs differ, with how many runs have another value than most.

    A run that does not use a key of run.toml does not differ in it. Paths, patterns, lines and ids are left out: they
    differ, but say nothing at a glance.
    """
    by_backend: dict[str, list[tuple[object, ...]]] = {}
    for info in infos:
        if info.config:
            by_backend.setdefault(info.config.backend, []).append(astuple(info.config))
    counters: dict[str, Counter[object]] = {}
    of_scripts: dict[str, dict[str, object]] = {}
    for backend, configs in by_backend.items():
        used = _keys_of(backend).keys() - OF_EVERY_RUN
        for key, values in zip(RunConfig.__struct_fields__, zip(*configs, strict=True), strict=True):
            if key in used:
                counted = Counter(values) if len(set(values)) > 1 else Counter({values[0]: len(values)})
                counters.setdefault(key, Counter()).update(counted)
    for info in infos:
        for key, value in own_values(info).items():
            text = repr(value)
            counters.setdefault(key, Counter())[text] += 1
            of_scripts.setdefault(key, {})[text] = value
    if len(groups := Counter[object](info.about.group for info in infos)) > 1:
        counters[GROUP] = groups
    apart = {key: counts.total() - max(counts.values()) for key, counts in counters.items() if len(counts) > 1}
    plain = {key for key in apart if _is_plain(key, of_scripts.get(key, {}).values())}
    first = [key for key in OPTIONS if key in plain] + [key for key in apart if key in plain and key not in OPTIONS]
    return {key: apart[key] for key in first}


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
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "=": operator.eq,
    ":": operator.eq,
    "!=": operator.ne,
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
        match = _COMPARISON.fullmatch(word)
        return cls(*match.groups()) if match else None

    def holds(self, value: object) -> bool:
        """Whether a run's value compares so; numbers with numbers, texts as a whole whatever the case of letters."""
        if value is None:
            return False
        try:
            number = float(self.value)
        except ValueError:
            number = math.nan
        if is_number(value) and not math.isnan(number):
            return _HOLDS[self.how](float(value), number)
        same = value_text(value).lower() == self.value.lower()
        return same if self.how in ("=", ":") else self.how == "!=" and not same


def unknown_name(name: str, names: Iterable[str]) -> str:
    """Says that no listed run has a value of that name."""
    return f"no run has {sanitize(name)!r}.{suggest(name, names)}"
