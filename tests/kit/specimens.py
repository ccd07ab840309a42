"""An event of every type with every field set, made from the types themselves, so that new ones are covered."""

from __future__ import annotations

import itertools
import types
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from tuiapp.trainers.contract.events import AnyEvent, Event

EVENT_TYPES: tuple[type[Event], ...] = get_args(AnyEvent)


def specimen(kind: type[Event]) -> AnyEvent:
    """An event whose fields all hold something other than their defaults."""
    event: AnyEvent = _build(kind, itertools.count(7))
    return event


def specimens() -> list[AnyEvent]:
    """One event of each type."""
    return [specimen(kind) for kind in EVENT_TYPES]


def _build(kind: type[msgspec.Struct], numbers: Iterator[int]) -> Any:
    hints = get_type_hints(kind)
    return kind(**{field.name: _value(hints[field.name], numbers) for field in msgspec.structs.fields(kind)})


def _value(hint: Any, numbers: Iterator[int]) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _value(arguments[0], numbers)
    if origin is Literal:
        return arguments[-1]
    if origin is list:
        return [_value(arguments[0], numbers), _value(arguments[0], numbers)]
    if origin is tuple:
        return tuple(_value(argument, numbers) for argument in arguments)
    if origin is dict:
        key = next(numbers)
        return {key if arguments[0] is int else f"key {key}": _value(arguments[1], numbers)}
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _build(hint, numbers)
    plain: dict[Any, Any] = {
        int: next(numbers),
        float: next(numbers) + 0.125,
        str: f'text {next(numbers)}: "é" \\ \n\r\x1b[31m',
        bool: True,
        object: ["a", 1, None],
    }
    return plain[hint]
