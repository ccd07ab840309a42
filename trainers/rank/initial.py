"""What a new model begins with, if that is not its seed's weights alone; and which parameters are not trained.

The keys `init_from` and `freeze`. Arrays are taken over where name and shape are the same, whatever wrapper stood
around the model or a part of it when the file was written; all others stay as the seed has them, such as a head for
another number of classes. The model is described by what its checkpoints hold.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import numpy.typing as npt

from tuiapp.trainers.config.catalog import matching, patterns_of
from tuiapp.trainers.config.options import ConfigError, Problem, shown
from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.contract.events import Alert, InitialWeights
from tuiapp.trainers.rank import tensor_files
from tuiapp.trainers.rank.reporter import Reporter

Shape: TypeAlias = tuple[int, ...]

_WRAPPERS = re.compile(r"(?:(?<=\.)|^)(?:module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
"""What PyTorch's DataParallel and DDP, `compile`, FSDP and activation checkpointing put into a name."""

LISTED = 3
"""Names in an error's message, of each kind."""
REPORTED = 16
"""Names in the event, of each kind."""


def initial_weights(
    plan: Plan, report: Reporter, shapes: Mapping[str, Shape], parameters: Collection[str], frozen: Collection[str]
) -> dict[str, npt.NDArray[Any]]:
    """Returns what a new model takes over from the file of `init_from`, and reports it; nothing without that key.

    `shapes` has all arrays of the model, `parameters` and `frozen` names of some. Raises ConfigError if the file cannot
    be read, or nothing in it fits.
    """
    source, arrays = plan.config.init_from, dict[str, npt.NDArray[Any]]()
    if source:
        arrays = _named_as_here(_read(source), shapes)
    same = {name: array for name, array in arrays.items() if shapes.get(name) == array.shape}
    if source and not same:
        raise ConfigError([Problem("init_from", _nothing_fits(source, arrays, shapes))])
    if source or frozen:
        reshaped = [f"{name} {list(arrays[name].shape)}, here {list(shapes[name])}" for name in arrays.keys() & shapes]
        report.send_from_rank0(
            InitialWeights(
                source=source,
                arrays=len(shapes),
                matched=len(same),
                reshaped=_first(line for line in sorted(reshaped) if line.partition(" ")[0] not in same),
                missing=_first(name for name in shapes if name not in arrays) if source else [],
                unused=_first(name for name in arrays if name not in shapes),
                frozen=sum(prod(shapes[name]) for name in frozen),
                parameters=sum(prod(shapes[name]) for name in parameters),
            )
        )
        if source and (stuck := [name for name in frozen if name not in same]):
            text = f"frozen, but not taken over, so that they stay as the seed has them: {_listed(sorted(stuck))}"
            report.send_from_rank0(Alert(kind="freeze", text=text))
    return same


def _named_as_here(arrays: Mapping[str, npt.NDArray[Any]], shapes: Mapping[str, Shape]) -> dict[str, npt.NDArray[Any]]:
    """Names what only wrappers name otherwise as the model does; the same name goes first, then the file's order."""
    here = {_WRAPPERS.sub("", name): name for name in shapes}
    renamed = {name: array for name, array in arrays.items() if name in shapes}
    for name, array in arrays.items():
        known_as = here.get(_WRAPPERS.sub("", name), name)
        renamed.setdefault(name if known_as in renamed else known_as, array)
    return renamed


def frozen_names(freeze: str, parameters: Iterable[str], prefix: str = "") -> frozenset[str]:
    """Returns those of the parameters' names that one of the patterns names, with or without the `prefix`.

    Raises ConfigError for a pattern that names none, or if no parameter is left to be trained.
    """
    names, named = list(parameters), set[str]()
    for pattern in patterns_of(freeze):
        matched = matching(pattern, names, prefix)
        named |= matched
        if not matched:
            message = f"{shown(pattern)} names no parameter; there are: {_listed(names, most=40)}."
            raise ConfigError([Problem("freeze", message)])
    frozen = frozenset(named)
    if names and len(frozen) == len(names):
        message = f"{shown(freeze)} names all {len(names)} parameters, which leaves nothing to train: omit some."
        raise ConfigError([Problem("freeze", message)])
    return frozen


def _read(source: str) -> dict[str, npt.NDArray[Any]]:
    try:
        return {name: tensor_files.as_float32(array) for name, array in tensor_files.load(Path(source)).items()}
    except OSError as error:
        message = f"{error.filename or source} cannot be read: {error.strerror or error}."
    except ValueError as error:
        message = f"{source} is damaged, or no safetensors file: {error}."
    raise ConfigError([Problem("init_from", message)])


def _nothing_fits(source: str, arrays: Mapping[str, npt.NDArray[Any]], shapes: Mapping[str, Shape]) -> str:
    rule = "arrays are taken over by name and shape, as of a run of the same framework and model"
    theirs = _with_shapes({name: array.shape for name, array in arrays.items()})
    return f"nothing in {source} fits this model: {rule}. The file has {theirs}; the model {_with_shapes(shapes)}."


def _with_shapes(shapes: Mapping[str, Shape]) -> str:
    """Returns the largest arrays, which are the ones to know a model by."""
    return _listed([f"{name} {list(shapes[name])}" for name in sorted(shapes, key=lambda name: -prod(shapes[name]))])


def _listed(names: list[str], most: int = LISTED) -> str:
    omitted = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + omitted if names else "nothing"


def _first(names: Iterable[str]) -> list[str]:
    """Returns the first of many, and how many more there are."""
    every = list(names)
    return every if len(every) <= REPORTED else [*every[:REPORTED], f"{len(every) - REPORTED:,} more"]
