"""The texts that describe a script: its name, arguments, environment variables and the pattern of its output."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from tuiapp.trainers.config.options import WORDS, read_number, shown

MODULE = "module:"
"""Before the name of a module that is run with `python -m`."""

STEP = "step"
"""The group of an output pattern that gives the step; every other named group is a metric."""

ESCAPES = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor movements
    "|(?:\x1b[\\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x9c|\x1b\\\\)?"  # OSC, DCS, SOS, PM, APC
    "|\x1b[ -/]*[0-~]?"  # all other escapes
)
_CONTROLS = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if code != ord("\t")}

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
VALUE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[/.][A-Za-z0-9_]+)*")
"""A value of the script's own, which may be one of a part of its configuration: `opt/lr`."""
_BRACES = re.compile(rf"\{{({VALUE_NAME.pattern})\}}")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


def split_words(text: str) -> list[str]:
    """Splits a text as a shell does, without expansions; raises ValueError for an unclosed quotation."""
    try:
        return shlex.split(text)
    except ValueError as error:
        reason = f"{error}".lower()
        raise ValueError(f"{shown(text)} cannot be split into words: {reason}; close the quotation.") from None


def read_environment(text: str, names: re.Pattern[str] = _VARIABLE) -> dict[str, str]:
    """Reads `A=1 B='x y'`; raises ValueError for an unclosed quotation or a word that sets no variable."""
    variables = {}
    for word in split_words(text):
        name, equals, value = word.partition("=")
        if not equals or not names.fullmatch(name):
            raise ValueError(f"{shown(word)} sets no variable; write NAME=VALUE, separated by spaces.")
        variables[name] = value
    return variables


CONFIG_VARIABLE = "TUIAPP_CONFIG_"
"""Environment variables with the values of a configuration begin so, followed by a value's name as it is written."""


IN_ARGUMENTS = "TUIAPP_IN_ARGUMENTS"
"""Environment variable: the names of those of them that the script's arguments name."""


def read_texts(text: str) -> dict[str, str]:
    """Reads `lr=0.1 opt/layers=3`, as `read_environment`."""
    return read_environment(text, VALUE_NAME)


def read_values(text: str) -> dict[str, bool | int | float | str]:
    """Reads values as `read_texts` does; what looks like a number, true or false is one."""
    return {name: as_value(value) for name, value in read_texts(text).items()}


def as_value(text: str) -> bool | int | float | str:
    """Returns a value that a text stands for, where nobody has declared what kind it is of."""
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    try:
        return int(text) if _WHOLE.fullmatch(text) else read_number(text)
    except ValueError:
        return text


def fill_in(word: str, values: Mapping[str, str]) -> str:
    """Puts values into the place of their names in braces; braces around anything else stay."""
    return _BRACES.sub(lambda match: values.get(match[1], match[0]), word)


def named_in_braces(text: str) -> list[str]:
    """Returns the names in braces, each once."""
    return list(dict.fromkeys(_BRACES.findall(text)))


def compile_pattern(text: str) -> re.Pattern[str]:
    """Compiles an output pattern; raises ValueError if it is not a regular expression, or names no metric."""
    try:
        pattern = re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{shown(text)} is not a regular expression: {error}.") from None
    if text and not set(pattern.groupindex) - {STEP}:
        raise ValueError(f"{shown(text)} has no named group; name each metric, as (?P<loss>\\S+).")
    return pattern


def as_read(line: str) -> str:
    """A line of output as its reader sees it: without colours, other escape sequences and control characters but tabs.

    An output pattern is written from what the log shows; a value ends where its colour does.
    """
    return line if line.isprintable() else ESCAPES.sub("", line).translate(_CONTROLS)


def check_name(script: str) -> None:
    """Raises ValueError for an empty name, or one after `module:` that is no module's."""
    if not script.removeprefix(MODULE).strip():
        raise ValueError("is empty; it must be the path of a Python script, or module:NAME.")
    module = script.removeprefix(MODULE)
    if script.startswith(MODULE) and not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(f"{shown(script)} is not allowed; after module: the name of a module must follow.")


def program_name(script: str) -> str:
    """Returns the name that views show: a script's file name, or a module's name."""
    return script.removeprefix(MODULE).rstrip("/").rpartition("/")[2]
