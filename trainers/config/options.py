"""Every setting, declared once: the form, `--set`, presets and error messages all read it from here.

An `Option` is attached to a field of a struct, such as `tuiapp.trainers.config.run_config.RunConfig`, with
`typing.Annotated`; type and default come from the field itself. What is set by environment variables alone, in seconds,
is at the end.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    import msgspec


Value: TypeAlias = str | int | float | bool | tuple[str, ...]

Kind: TypeAlias = Literal["str", "int", "float", "bool", "list"]

Text: TypeAlias = Literal["word", "line", "script", "program", "directory", "weights"]

MAX_CHARACTERS = 8192
"""Most characters of a free text: a file with all keys stays below `run_config.MAX_FILE_BYTES`."""

WORDS = {"false": False, "true": True}

AFTER_PREFIX = {"py:": "FILE:NAME", "highest:": "METRIC", "lowest:": "METRIC"}
"""Prefix of a value → what follows, if it is no path alone."""

_WHOLE = re.compile(r"[+-]?([0-9]+|[0-9]{1,3}([,_][0-9]{3})+)")
"""An integer; thousands may be separated."""

_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
"""A number. Python's own `float` takes the digits of every script."""

GROUPS = ("Trainer", "Devices", "Optimization", "Run")


@dataclass(frozen=True, slots=True)
class Problem:
    key: str
    message: str
    """What was given, what is allowed, and the nearest match if any."""
    also: tuple[str, ...] = ()
    """Other keys involved."""

    @property
    def keys(self) -> set[str]:
        return {self.key, *self.also}

    def __str__(self) -> str:
        return f"{self.key}: {self.message}" if self.key else self.message


class ConfigError(ValueError):
    """An invalid configuration; carries every problem found, not only the first."""

    def __init__(self, problems: Iterable[Problem], source: str = "") -> None:
        self.problems = list(problems)
        self.source = source
        prefix = f"{source}: " if source else ""
        super().__init__("\n".join(f"{prefix}{problem}" for problem in self.problems))


@dataclass(frozen=True, slots=True)
class Option:
    group: str = ""
    label: str = ""
    help: str = ""
    choices: tuple[str, ...] = ()
    """Allowed values; empty if a range, or nothing, limits the value."""
    prefixes: tuple[str, ...] = ()
    """Alternatives to the choices: prefixes followed by what `AFTER_PREFIX` says, or by a path, as "npz:"."""
    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    below: float | None = None
    text: Text = "word"
    """How free text is entered: a word, a line, or a path, which is completed."""
    only: tuple[str, tuple[str, ...]] | None = None
    """Another key and its values, or their prefixes ("folder:"), with which this one is used; None if always.

    The form hides it otherwise.
    """
    why: str = ""
    """Why it is used with those alone, where that is not plain."""
    aliases: tuple[str, ...] = ()
    """What other programs call the same: understood wherever a key is given."""
    is_rare: bool = False
    """Whether the form folds it under "Advanced" while it has its default."""
    similar: tuple[str, ...] = ()
    """What other programs call something near it: the answer to one of these names the key and says what it means."""
    key: str = field(default="", compare=False)
    kind: Kind = field(default="str", compare=False)
    default: Value = field(default="", compare=False)

    @property
    def menu(self) -> tuple[str, ...]:
        """The texts to choose from; empty for free input."""
        return tuple(WORDS) if self.kind == "bool" else self.choices

    def applies(self, values: Mapping[str, object]) -> bool:
        if self.only is None:
            return True
        key, allowed = self.only
        value = str(values[key])
        return value in allowed or any(prefix.endswith(":") and value.startswith(prefix) for prefix in allowed)

    def allowed(self) -> str:
        if self.menu:
            return "one of " + ", ".join(
                [*self.menu, *(f"{prefix}{AFTER_PREFIX.get(prefix, 'PATH')}" for prefix in self.prefixes)]
            )
        nouns = {"int": "a whole number", "float": "a number", "list": "a list of strings"}
        noun = nouns.get(self.kind, "a string")
        bounds = [
            text.format(_number(bound))
            for text, bound in (
                ("of at least {}", self.minimum),
                ("above {}", self.above),
                ("of at most {}", self.maximum),
                ("below {}", self.below),
            )
            if bound is not None
        ]
        return " ".join([noun, " and ".join(bounds)]).strip()

    def check(self, value: object) -> Value:
        """Checks a value from TOML or `parse`; raises ConfigError if it has a wrong type or is not allowed.

        Returns an int widened to float for a float key, a list as a tuple.
        """
        if self.kind == "list":
            if not isinstance(value, list | tuple) or any(
                isinstance(item, bool) or not isinstance(item, str | int) for item in value
            ):
                raise self._refuse(value)
            items = tuple(item if isinstance(item, str) else shown(item) for item in value)
            if not all(map(str.isprintable, items)):
                raise self._refuse(value, " It has characters that cannot be shown.")
            return items
        if self.kind == "bool":
            if not isinstance(value, bool):
                raise self._refuse(value)
            return value
        if self.kind == "str":
            if not isinstance(value, str):
                raise self._refuse(value)
            if not self.choices:
                self._check_text(value)
            elif value not in self.choices and self.prefix_of(value) in ("", value):
                raise self._refuse(value, self._nearest(value))
            elif not value.isprintable():
                raise self._refuse(value, " It has characters that cannot be shown.")
            return value
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or (self.kind == "int" and isinstance(value, float))
            or not self._in_range(value)
        ):
            raise self._refuse(value)
        return float(value) if self.kind == "float" else value

    def parse(self, text: str) -> Value:
        """Parses input from the command line or the form; raises ConfigError if it is invalid or not allowed."""
        text = text.strip()
        try:
            if self.kind == "int":
                return self.check(_read_whole(text))
            if self.kind == "float":
                return self.check(read_number(text))
        except ConfigError:
            raise
        except ValueError:
            raise self._refuse(text) from None
        if self.kind == "bool":
            return self.check(WORDS.get(text.lower(), text))
        if self.kind == "list":
            return self.check([item.strip() for item in text.strip("[]").split(",") if item.strip()])
        return self.check(text)

    def _check_text(self, value: str) -> None:
        if len(value) > MAX_CHARACTERS:
            raise self._refuse(value, f" It has more than {MAX_CHARACTERS:,} characters.")
        # No process can be given a NUL, no file of ours holds what is not UTF-8.
        if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
            raise self._refuse(value, " It has characters that are not text.")

    def prefix_of(self, text: str) -> str:
        return next((prefix for prefix in self.prefixes if text.startswith(prefix)), "")

    def _nearest(self, value: str) -> str:
        if value in self.prefixes:
            return ""
        head, colon, path = value.partition(":")
        for prefix in self.prefixes:
            if value.endswith(f".{prefix[:-1]}") and not colon and value.isprintable():
                return f" Did you mean {shown(prefix + value)}?"
            if path and (meant := suggest(head + colon, self.prefixes)):
                return meant
        return suggest(value, (*self.choices, *self.prefixes))

    def _in_range(self, value: float) -> bool:
        # Written so that NaN fails; an int is finite, and may be too large to be converted.
        return (
            (isinstance(value, int) or math.isfinite(value))
            and (self.minimum is None or value >= self.minimum)
            and (self.above is None or value > self.above)
            and (self.maximum is None or value <= self.maximum)
            and (self.below is None or value < self.below)
        )

    def _refuse(self, value: object, hint: str = "") -> ConfigError:
        return ConfigError([Problem(self.key, f"{shown(value)} is not allowed; it must be {self.allowed()}.{hint}")])


KINDS: dict[object, Kind] = {str: "str", int: "int", float: "float", bool: "bool", tuple: "list"}


def declared(struct: type[msgspec.Struct]) -> dict[str, Option]:
    """Returns the options that a struct's fields are annotated with, by key, each with its field's kind and default."""
    # Imported late: commands that only read a number do without.
    import msgspec

    hints = get_type_hints(struct, include_extras=True)
    options = {}
    for info in msgspec.structs.fields(struct):
        if get_origin(hints[info.name]) is Annotated:
            base, option = get_args(hints[info.name])
            options[info.name] = replace(
                option, key=info.name, kind=KINDS[get_origin(base) or base], default=info.default
            )
    return options


def read_number(text: str) -> float:
    """Parses a number in ASCII digits; raises ValueError."""
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is not a number")
    return float(text)


def _read_whole(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text.replace(",", "").replace("_", ""))


def format_value(value: Value) -> str:
    """Formats a value as typed after `--set KEY=`: what `Option.parse` reads back."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        short = f"{value:.15g}"
        return short if float(short) == value else repr(value)
    return str(value)


def shown(value: object) -> str:
    """Quotes a value for an error message, on one line and of bounded length."""
    try:
        text = repr(value)
    except ValueError:  # an int of thousands of digits
        text = "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "…"


def nearest(word: str, names: Iterable[str]) -> str:
    """Returns the known word that a mistyped or shortened one is meant for; "" where none is near enough to be that."""
    spelt = {name.casefold(): name for name in names}
    word = word.casefold()
    # Of 4 letters one may be wrong, of 3 none, so that "gpu" is not taken for "cpu".
    near = get_close_matches(word, spelt, n=1, cutoff=0.75)
    near = near or [name for name in spelt if sorted(name) == sorted(word)]
    near = near or [name for name in spelt if word in re.split(r"[\W_]+", name) or (word and name.startswith(word))]
    return spelt[near[0]] if near else ""


def suggest(word: str, names: Iterable[str]) -> str:
    """Returns the sentence " Did you mean …?" for the nearest known word, or ""."""
    meant = nearest(word, names)
    return f" Did you mean {meant!r}?" if meant else ""


def _number(value: float) -> str:
    if isinstance(value, int) or (value.is_integer() and 1e4 <= abs(value) < 1e15):
        return f"{value:,.0f}"
    return f"{value:.15g}"


HANG_VARIABLE = "TUIAPP_HANG_S"
"""Seconds without a step, or with a stopped rank, before an alert."""
HANG_S, LEAST_HANG_S, MOST_HANG_S = 30.0, 1.0, 604_800.0

INTERVAL_VARIABLE = "TUIAPP_TELEMETRY_S"
GPUS_VARIABLE = "TUIAPP_TELEMETRY_GPUS"
"""What to sample instead of the run's own GPUs: indices or UUIDs, or "all"."""
INTERVAL_S, LEAST_INTERVAL_S, MOST_INTERVAL_S = 1.0, 0.25, 3600.0
"""Drivers take some milliseconds to answer, and update their figures a few times a second."""


def hang_limit_s() -> float:
    """Returns the limit for steps, from TUIAPP_HANG_S; raises ConfigError if that is invalid."""
    return read_seconds(HANG_VARIABLE, HANG_S, LEAST_HANG_S, MOST_HANG_S)


def telemetry_interval_s() -> float:
    """Returns the seconds between samples, from TUIAPP_TELEMETRY_S; raises ConfigError if that is invalid."""
    return read_seconds(INTERVAL_VARIABLE, INTERVAL_S, LEAST_INTERVAL_S, MOST_INTERVAL_S)


def read_seconds(variable: str, default: float, least: float, most: float) -> float:
    """Reads seconds from an environment variable; raises ConfigError for a non-number, or one out of range."""
    text = os.environ.get(variable, "").strip()
    if not text:
        return default
    try:
        seconds = read_number(text)
    except ValueError:
        seconds = math.nan
    if not least <= seconds <= most:
        raise ConfigError([Problem(variable, f"{text!r} is not a number of seconds from {least} to {most:.0f}.")])
    return seconds
