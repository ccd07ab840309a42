"""What a sweep goes through: for each key a list of values or a range, as one text.

`0.1, 0.03, 0.01` is a list; `0..4` all whole numbers of a range, `0.5..0.9:5` five numbers evenly apart,
`log:1e-5..1e-1` one of each decade, `log:16..256:5` five by equal factors. A search draws from a range without a count.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from tuiapp.trainers.config.catalog import BACKENDS, takes
from tuiapp.trainers.config.machine import Machine, unused
from tuiapp.trainers.config.options import ConfigError, Option, Problem, Value, format_value, read_number, shown
from tuiapp.trainers.config.placement import placement_problems
from tuiapp.trainers.config.relevance import with_changes
from tuiapp.trainers.config.run_config import OPTIONS, Check, RunConfig, get_option, to_mapping
from tuiapp.trainers.config.script_syntax import VALUE_NAME, as_value, read_texts
from tuiapp.trainers.contract.sidecars import MAX_NAME_CHARACTERS
from tuiapp.trainers.state.resume_point import check_weights
from tuiapp.trainers.state.text import without_directories

MOST_RUNS = 1000
"""Most runs of a sweep over all combinations."""

RANGE_RULE = "a range is 0..4, 0.5..0.9:5 (five values), log:1e-5..1e-1 or log:16..256:5"

_RANGE = re.compile(r"(?:(log)(?::|\s)\s*)?(\S+?)\.\.(\S+?)(?::(\S*))?")
MAX_NAME_OF_VALUE = 40
_DECADE = 1e-9
"""How near to whole a number of decades must be."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A key and what it goes through: values, or a range to draw from."""

    key: str
    text: str
    """The text after `KEY=`."""
    values: tuple[Value, ...] = ()
    """The values; empty of a range to draw from."""
    low: float = 0
    high: float = 0
    log: bool = False
    whole: bool = False
    """Whether what is drawn from the range is a whole number."""

    @property
    def probes(self) -> tuple[Value, ...]:
        """What a configuration is checked with, so that all that it may give is allowed as far as that can be said."""
        return self.values or tuple(int(end) if self.whole else end for end in (self.low, self.high))


def is_own(base: Mapping[str, object], key: str) -> bool:
    """Whether a key is one of the script's own values, and none of its run's configuration."""
    backend = str(base["backend"])
    return not BACKENDS[backend].builtin and (key not in OPTIONS or not takes(backend, key))


def names_several(option: Option, text: str) -> bool:
    """Whether a text stands for several values, where a single one is allowed, too."""
    if option.kind == "list" or option.text != "word":
        return False
    try:
        option.parse(text)
    except ConfigError:
        return "," in text or bool(_RANGE.fullmatch(text.strip()))
    return False


def read_axis(base: Mapping[str, object], key: str, text: str, *, draws: bool = False) -> Axis:
    """Reads what a key goes through, of a configuration with the values of `base`; raises ConfigError.

    `draws`: a range without a count is one to draw from.
    """
    key, option = key.strip(), None
    if not is_own(base, key):
        option = get_option(key)
        key = option.key
        if option.kind == "list" or option.text == "line":
            hint = "; write {NAME} in it, and sweep NAME" if key == "arguments" else ""
            raise ConfigError([Problem(key, f"is not one value, so that it cannot be swept{hint}.")])
    elif not VALUE_NAME.fullmatch(key) or len(key) > MAX_NAME_OF_VALUE:
        rule = "use letters, digits and underscores, with / or . between them"
        raise ConfigError([Problem("", f"{shown(key)} is no name of a value: {rule}.")])
    pieces = [piece.strip() for piece in text.split(",")]
    if not all(pieces):
        raise ConfigError([Problem(key, f"{shown(text)} has an empty value; write A,B or a range as A..B.")])
    spoken = ",".join(re.sub(r"^log\s+", "log:", piece) for piece in pieces)
    if draws and len(pieces) == 1 and (parsed := _range_of(key, option, pieces[0])) and parsed[4] is None:
        log, low, high, integral, _ = parsed
        return Axis(key, spoken, low=low, high=high, log=log, whole=integral)
    # Python takes 1, 1.0 and True for the same.
    values, problems = dict[tuple[type, Value], Value](), list[Problem]()
    for piece in pieces:
        try:
            values |= {(type(value), value): value for value in _values(key, option, piece)}
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return Axis(key, spoken, tuple(values.values()))


def _values(key: str, option: Option | None, piece: str) -> list[Value]:
    parsed = _range_of(key, option, piece)
    if parsed is None:
        return [option.parse(piece) if option else as_value(piece)]
    log, low, high, integral, count = parsed
    if count is None and log and low < high:
        decades = math.log10(high / low)
        count = round(decades) + 1 if abs(decades - round(decades)) < _DECADE else None
    elif count is None and integral:
        count = int(high - low) + 1
    if count is None:
        text = f"{shown(piece)} needs a count, as {piece}:5 for five values; in a search it needs none."
        raise ConfigError([Problem(key, text)])
    if count > MOST_RUNS:
        raise ConfigError([Problem(key, f"{shown(piece)} has {count:,} values; at most {MOST_RUNS:,} are allowed.")])
    shares = [index / max(1, count - 1) for index in range(count)]
    numbers = [low * (high / low) ** share if log else low + (high - low) * share for share in shares]
    values: list[Value] = []
    for digits in range(4, 18):
        # What is computed is short enough to be read in a name, but apart; the ends are as they were given.
        values = [round(number) if integral else float(f"{number:.{digits}g}") for number in numbers]
        values[-1], values[0] = (int(high), int(low)) if integral else (high, low)
        if integral or values == sorted(set(values)):
            break
    return [option.check(value) if option else value for value in values]


def _range_of(key: str, option: Option | None, piece: str) -> tuple[bool, float, float, bool, int | None] | None:
    """Whether it is by factors, its ends, whether they are whole numbers, and its count; None if it is no range."""
    match = _RANGE.fullmatch(piece)
    if match is None or (option is not None and option.kind not in ("int", "float")):
        return None
    log, start, end, count = match.groups()
    try:
        low, high = read_number(start), read_number(end)
    except ValueError:
        if option is None and not log:
            # Of a script's own value it may be a path.
            return None
        raise ConfigError([Problem(key, f"{shown(piece)} is no range: {RANGE_RULE}.")]) from None
    if count is not None and not (count.isascii() and count.isdigit() and int(count[:9]) > 0):
        raise ConfigError([Problem(key, f"{shown(piece)} has the count {shown(count)}: {RANGE_RULE}.")])
    integral = option.kind == "int" if option else all(bound.lstrip("+-").isdecimal() for bound in (start, end))
    if integral and not (low.is_integer() and high.is_integer()):
        raise ConfigError([Problem(key, f"{shown(piece)} must have whole numbers as its ends.")])
    if option:
        for bound in (low, high):
            option.check(int(bound) if integral else bound)
    if low > high:
        raise ConfigError([Problem(key, f"{low:g}..{high:g} is empty; write the smaller number first.")])
    if log and low <= 0:
        raise ConfigError([Problem(key, f"log:{low:g}..{high:g} must begin above 0.")])
    return bool(log), low, high, integral, None if count is None else int(count[:9])


def combinations(axes: Sequence[Axis]) -> list[dict[str, Value]]:
    """Returns every combination of the axes' values, the last axis running fastest; raises ConfigError for too many."""
    count = math.prod(len(axis.values) for axis in axes)
    if count > MOST_RUNS:
        counts = " × ".join(f"{len(axis.values):,} of {axis.key}" for axis in axes)
        raise ConfigError([Problem("", f"{counts} are {count:,} runs; at most {MOST_RUNS:,} are allowed.")])
    keys = [axis.key for axis in axes]
    return [dict(zip(keys, values, strict=True)) for values in product(*(axis.values for axis in axes))]


def checks_of(machine: Machine) -> list[Check]:
    """Returns what each configuration is checked for: not for what is busy now."""
    idle = unused(machine)
    return [lambda config: placement_problems(config, idle), check_weights]


def with_values(base: RunConfig, values: Mapping[str, Value], checks: Sequence[Check] = ()) -> RunConfig:
    """Returns a configuration with the values of a combination; raises ConfigError."""
    plain: dict[str, object] = {**to_mapping(base)}
    script_values = {key: value for key, value in values.items() if is_own(plain, key)}
    changes: dict[str, object] = {key: value for key, value in values.items() if key not in script_values}
    if script_values:
        texts = read_texts(base.values) | {key: format_value(value) for key, value in script_values.items()}
        changes["values"] = shlex.join(f"{key}={value}" for key, value in texts.items())
    if changes.keys() & {"platform", "devices"}:
        plain["device_ids"] = ()
    return with_changes(plain, changes, checks)


def all_configs(
    base: RunConfig, combined: Sequence[Mapping[str, Value]], checks: Sequence[Check] = ()
) -> list[RunConfig]:
    """Returns the configuration of each combination; raises ConfigError with the problems of all, each once."""
    configs, problems = list[RunConfig](), dict[str, Problem]()
    for values in combined:
        try:
            configs.append(with_values(base, values, checks))
        except ConfigError as error:
            problems |= {str(problem): problem for problem in error.problems}
    if problems:
        raise ConfigError(problems.values())
    return configs


def check_draws(base: RunConfig, axes: Sequence[Axis], checks: Sequence[Check] = ()) -> list[Problem]:
    """Returns the problems of a search: each key at the ends of its range, or at all of its values."""
    first = {axis.key: axis.probes[0] for axis in axes}
    try:
        all_configs(base, [{**first, axis.key: value} for axis in axes for value in axis.probes], checks)
    except ConfigError as error:
        return [*error.problems]
    return []


def run_name(values: Mapping[str, Value], written: Callable[[Value], str] = format_value, before: str = "") -> str:
    """Returns what the run of a combination is called: its values, as they are `written`."""
    text = before + " ".join(f"{key}={without_directories(written(value))}" for key, value in values.items())
    return text if len(text) <= MAX_NAME_CHARACTERS else text[: MAX_NAME_CHARACTERS - 1] + "…"


def short_value(value: Value) -> str:
    """Returns a value as tables and the names of a search's runs have it."""
    return f"{value:.4g}" if isinstance(value, float) else without_directories(format_value(value))
