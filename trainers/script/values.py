"""A script's configuration and summary: what is put into them is reported, as far as JSON can hold it.

What has fields of its own is taken apart, and its names are joined by slashes, as those of metrics are: `opt/lr` is a
key that lists filter and sort by.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import math
import numbers
import types
from argparse import Namespace
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from typing import Any

from tuiapp.trainers.script.client import MAX_NAME, encodable

MAX_FACT = 4096
"""Characters of a value of `config` or `summary`."""
MAX_ITEMS = 100
"""Most items of a list among the values."""
UNKNOWN = "???"
"""A value that cannot be read, as OmegaConf writes one that is missing."""


class ReportedDict(dict[str, Any]):
    """A dictionary whose items are attributes too; changes are reported, and to `refuse` why one cannot be made."""

    def __init__(self, report: Callable[[dict[str, Any]], None], refuse: Callable[[Exception], None]) -> None:
        super().__init__()
        self.__dict__["_report"], self.__dict__["_refuse"] = report, refuse

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        self.__dict__["_report"]({key: value})

    def update(self, *values: Any, allow_val_change: bool | None = None, **named: Any) -> None:
        """Updates as a dictionary does, also from any object with attributes. Values may always change."""
        try:
            added = _mapping(values[0]) if values and values[0] is not None else {}
        except Exception as error:
            self.__dict__["_refuse"](error)
            added = {}
        self.restore(added | named)
        self.__dict__["_report"](added | named)

    def restore(self, values: Mapping[str, Any]) -> None:
        """Adds what is reported already."""
        super().update(values)

    def __ior__(self, values: Any) -> ReportedDict:  # type: ignore[override,misc]
        self.update(values)
        return self

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def setdefaults(self, values: Any) -> None:
        """Adds what is not there."""
        self.update({key: value for key, value in _mapping(values).items() if key not in self})

    def __reduce__(self) -> Any:
        # A copy, or that in another process, reports nothing.
        return _unreported, (dict.copy(self),)

    def as_dict(self) -> dict[str, Any]:
        """Returns a copy, whose changes are not reported."""
        return dict(self)

    __setattr__ = __setitem__

    def __getattr__(self, key: str) -> Any:
        try:
            return self[key]
        except KeyError:
            raise AttributeError(key) from None


def _unreported(values: dict[str, Any]) -> ReportedDict:
    copied = ReportedDict(lambda _: None, lambda _: None)
    copied.restore(values)
    return copied


class Config(ReportedDict):
    """A script's configuration, in which values that its launch gives take the place of the script's own.

    Where the script has said another value itself, that is what is reported until it reads the given one here: it may
    have gone by its own. `has_trained` tells whether it has reported metrics: a copy of all that is made after that, as
    for a print, is no such reading.
    """

    def __init__(
        self,
        report: Callable[[dict[str, Any]], None],
        refuse: Callable[[Exception], None],
        has_trained: Callable[[], bool],
    ) -> None:
        super().__init__(report, refuse)
        self.__dict__["_has_trained"] = has_trained
        self.__dict__["_unread"] = dict[str, dict[str, Any]]()

    def give(self, values: Mapping[str, Any], in_arguments: Collection[str]) -> None:
        """Takes values that the launch gives; what the script says of those `in_arguments` it has from there."""
        stated = facts(self)
        for name, value in values.items():
            if name not in stated:
                self[name] = value
            elif name not in in_arguments and stated[name] != value:
                key, _, inner = (name, "", "") if name in self else name.partition("/")
                original = dict.__getitem__(self, key)
                dict.__setitem__(self, key, _with(original, inner, value) if inner else value)
                self.__dict__["_unread"].setdefault(key, {})[name] = value

    def unread(self) -> dict[str, Any]:
        """Returns the values that were given and have not been read, though the script says others."""
        return {name: value for values in self.__dict__["_unread"].values() for name, value in values.items()}

    def __getitem__(self, key: str) -> Any:
        if self.__dict__["_unread"] and not self.__dict__["_has_trained"]():
            self._read(key)
        return super().__getitem__(key)

    def __getattr__(self, key: str) -> Any:
        self._read(key)
        return super().__getattr__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._read(key)
        return super().get(key, default)

    def __iter__(self) -> Iterator[str]:
        # Without it `dict(config)` and `**config` would not call the others.
        return super().__iter__()

    def items(self) -> Any:
        self._read_all()
        return super().items()

    def values(self) -> Any:
        self._read_all()
        return super().values()

    def __setitem__(self, key: str, value: Any) -> None:
        self.__dict__["_unread"].pop(key, None)
        super().__setitem__(key, value)

    __setattr__ = __setitem__

    def _read(self, key: str) -> None:
        if values := self.__dict__["_unread"].pop(key, None):
            self.__dict__["_report"](values)

    def _read_all(self) -> None:
        if not self.__dict__["_has_trained"]():
            for key in list(self.__dict__["_unread"]):
                self._read(key)


def facts(values: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Returns what JSON can hold of values, by name; those of what has fields of its own are joined by slashes."""
    flat: dict[str, Any] = {}
    for key in dict.keys(values) if isinstance(values, dict) else values:
        try:
            value = dict.__getitem__(values, key) if isinstance(values, dict) else values[key]
        except Exception:  # OmegaConf's missing values and interpolations
            value = UNKNOWN
        name = f"{prefix}{key}"
        if inner := _fields(value):
            flat |= facts(inner, f"{name}/")
        else:
            flat[encodable(name, MAX_NAME)] = plain(value)
    return flat


def plain(value: Any) -> Any:
    """Returns what JSON can hold; arrays of one number are that number, other values text."""
    if isinstance(value, enum.Enum):
        return value.name
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, numbers.Integral):
        # A seed that JSON's readers would round.
        return int(value) if abs(int(value)) < 2**63 else str(int(value))
    if isinstance(value, numbers.Real):
        return number if math.isfinite(number := float(value)) else str(number)
    if isinstance(value, str):
        return encodable(value, MAX_FACT)
    if (inner := _fields(value)) is not None:
        return facts(inner)
    if isinstance(value, Set):
        return plain(sorted(value, key=str))
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [plain(item) for item in value[:MAX_ITEMS]]
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
        return encodable(f"{value.__module__}.{value.__qualname__}", MAX_FACT)
    if (size := _size_of(value)) is not None and 0 < size <= MAX_ITEMS and hasattr(value, "tolist"):
        return plain(value.item() if size == 1 else value.tolist())
    return encodable(value, MAX_FACT)


def _size_of(value: Any) -> int | None:
    """Returns how many numbers an array of NumPy, PyTorch or JAX has; None for what is none."""
    size = value.numel() if callable(getattr(value, "numel", None)) else getattr(value, "size", None)
    return size if isinstance(size, int) else None


def _mapping(values: Any) -> dict[str, Any]:
    pairs = _fields(values)
    if pairs is None:
        pairs = vars(values) if hasattr(values, "__dict__") else dict(values)
    return {str(key): pairs[key] for key in pairs}


def _fields(value: Any) -> Mapping[Any, Any] | None:
    """Returns what has named fields, as a mapping: a configuration of any library's; None for anything else."""
    kind = type(value)
    if isinstance(value, Mapping):
        return value
    names: Any = ()
    if isinstance(value, Namespace | types.SimpleNamespace) or hasattr(kind, "model_fields"):  # pydantic's
        names = list(vars(value))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
    elif isinstance(value, tuple):
        names = getattr(kind, "_fields", ())
    elif hasattr(kind, "__attrs_attrs__"):
        names = [field.name for field in kind.__attrs_attrs__]
    elif kind.__name__.endswith("ConfigDict") and callable(getattr(value, "keys", None)):  # ml_collections'
        return {key: value[key] for key in value.keys()}  # noqa: SIM118
    return {name: getattr(value, name, UNKNOWN) for name in names} or None


def _with(value: Any, name: str, new: Any) -> Any:
    """Returns a copy in which a field, or one of a field's and so on, is another."""
    first, _, inner = name.partition("/")
    changed = copy.copy(value)
    if isinstance(value, Mapping):
        changed[first] = _with(value[first], inner, new) if inner else new
    else:
        object.__setattr__(changed, first, _with(getattr(value, first), inner, new) if inner else new)
    return changed
