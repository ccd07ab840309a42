"""A script's configuration, its summary, what `define_metric` makes of values, and what the script is told."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import enum
import os
import pickle
import sys
import types
from collections.abc import Callable, Collection
from contextlib import suppress
from fractions import Fraction
from math import inf, nan
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pydantic
import pytest
import torch

import tuiapp
from tuiapp.trainers.script.client import Aggregates
from tuiapp.trainers.script.values import MAX_ITEMS, Config, facts, plain


class Kind(enum.Enum):
    LORA = "lora"


@dataclasses.dataclass(frozen=True)
class Opt:
    lr: float = 0.1
    betas: tuple[float, float] = (0.9, 0.99)


@dataclasses.dataclass(slots=True)
class Slotted:
    opt: Opt = dataclasses.field(default_factory=Opt)


class Model(pydantic.BaseModel):
    depth: int = 2
    inner: dict[str, int] = {"k": 1}


class Pair(NamedTuple):
    x: int
    y: int


NUMBERS = [
    (np.float64(0.5), 0.5),
    (np.float16(0.5), 0.5),
    (np.int8(3), 3),
    (np.bool_(True), True),
    (np.array(2.5), 2.5),
    (np.array([2.0]), 2.0),
    (np.array([[7]]), 7),
    (np.uint64(2**62), 2**62),
    (torch.tensor(0.5, requires_grad=True), 0.5),
    (torch.tensor([0.5], dtype=torch.bfloat16), 0.5),
    (torch.tensor(3), 3),
    (jnp.float32(1.5), 1.5),
    (jnp.ones((1, 1)), 1.0),
    (Fraction(1, 4), 0.25),
    (2**70, str(2**70)),
    (True, True),
    (None, None),
]


@pytest.mark.parametrize(("value", "number"), NUMBERS)
def test_what_is_one_number_is_that_number(value: object, number: object) -> None:
    assert (plain(value), type(plain(value))) == (number, type(number))


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (np.arange(3), [0, 1, 2]),
        (torch.ones(2, 2), [[1.0, 1.0], [1.0, 1.0]]),
        ({3, 1}, [1, 3]),
        (range(2), [0, 1]),
        ([1, {"a": Opt()}], [1, {"a/lr": 0.1, "a/betas": [0.9, 0.99]}]),
        (list(range(1000)), list(range(MAX_ITEMS))),
        (Kind.LORA, "LORA"),
        (torch.nn.ReLU, "torch.nn.modules.activation.ReLU"),
        (torch.bfloat16, "torch.bfloat16"),
        (Path("/data"), "/data"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
        (1j, "1j"),
        ({}, {}),
    ],
)
def test_other_values_are_what_json_has(value: object, kept: object) -> None:
    assert plain(value) == kept


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ({"b": {"c": 1}}, {"a/b/c": 1}),
        (argparse.Namespace(b=argparse.Namespace(c=1), d=Kind.LORA), {"a/b/c": 1, "a/d": "LORA"}),
        (types.SimpleNamespace(b=1), {"a/b": 1}),
        (Opt(), {"a/lr": 0.1, "a/betas": [0.9, 0.99]}),
        (Slotted(), {"a/opt/lr": 0.1, "a/opt/betas": [0.9, 0.99]}),
        (Model(), {"a/depth": 2, "a/inner/k": 1}),
        (Pair(1, 2), {"a/x": 1, "a/y": 2}),
        ({7: "seven", Kind.LORA: 1}, {"a/7": "seven", "a/Kind.LORA": 1}),
        ({}, {"a": {}}),
        (torch.nn.Linear(1, 1), {"a": "Linear(in_features=1, out_features=1, bias=True)"}),
    ],
)
def test_what_has_fields_is_taken_apart(value: object, kept: object) -> None:
    assert facts({"a": value}) == kept


def test_what_cannot_be_read_costs_itself_alone() -> None:
    omegaconf = pytest.importorskip("omegaconf")
    config = omegaconf.OmegaConf.create({"opt": {"lr": 0.1, "same": "${opt.lr}", "missing": "???"}, "layers": [1, 2]})
    kept = {"opt/lr": 0.1, "opt/same": 0.1, "opt/missing": "???", "layers": [1, 2]}
    assert facts(config) == kept


def _config(values: Any = None, has_trained: Callable[[], bool] = lambda: False) -> tuple[Config, dict[str, Any]]:
    """A configuration, and what is reported of it."""
    reported: dict[str, Any] = {}
    errors: list[Exception] = []
    config = Config(lambda more: reported.update(facts(more)), errors.append, has_trained)
    config.update(values)
    return config, reported


def test_what_wandbs_configuration_does() -> None:
    config: Any
    config, reported = _config(Opt())
    config.update({"a": 1}, allow_val_change=True)
    config.update({"b": 2}, c=3)
    config.d = 4
    config |= {"e": {"f": 5}}
    config.setdefaults({"a": 0, "g": 6})
    assert (config.as_dict() == dict(config), config.a, config["g"]) == (True, 1, 6)
    assert reported == {"lr": 0.1, "betas": [0.9, 0.99], "a": 1, "b": 2, "c": 3, "d": 4, "e/f": 5, "g": 6}
    for copied in (copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        copied.a = 10
        assert (copied["a"], copied.lr, config.a, reported["a"]) == (10, 0.1, 1, 1)


READINGS: dict[str, Callable[[Config], Any]] = {
    "item": lambda config: config["lr"],
    "attribute": lambda config: config.lr,
    "get": lambda config: config.get("lr"),
    "a copy": lambda config: dict(config)["lr"],
    "arguments": lambda config: argparse.Namespace(**config).lr,
    "items": lambda config: dict(list(config.items()))["lr"],
    "values": lambda config: next(iter(config.values())),
}


@pytest.mark.parametrize("reading", READINGS)
def test_a_value_that_was_given_is_reported_once_it_is_read(reading: str) -> None:
    config, reported = _config({"lr": 0.5, "wd": 0.0})
    config.give({"lr": 0.1, "new": 3}, ())
    assert (reported, config.unread()) == ({"lr": 0.5, "wd": 0.0, "new": 3}, {"lr": 0.1})
    assert READINGS[reading](config) == 0.1
    assert (reported["lr"], config.unread()) == (0.1, {})


@pytest.mark.parametrize(
    ("reading", "used"), [(lambda config: dict(config), 0.5), (repr, 0.5), (lambda config: config.lr, 0.1)]
)
def test_a_copy_of_all_after_training_is_no_reading(reading: Callable[[Config], Any], used: float) -> None:
    config, reported = _config({"lr": 0.5}, lambda: True)
    config.give({"lr": 0.1}, ())
    reading(config)
    assert reported == {"lr": used}


@pytest.mark.parametrize(
    ("stated", "given", "in_arguments", "says"),
    [
        # What the script has from its arguments it has understood as it likes.
        ({"act": "true"}, {"act": True}, ["act"], {"act": "true"}),
        ({}, {"act": True}, ["act"], {"act": True}),
        ({"lr": 0.1}, {"lr": 0.1}, [], {"lr": 0.1}),
        (None, {"opt/lr": 0.2}, [], {"opt/lr": 0.2}),
    ],
)
def test_what_is_given_is_what_the_configuration_says(
    stated: Any, given: dict[str, Any], in_arguments: Collection[str], says: dict[str, Any]
) -> None:
    config, reported = _config(stated)
    config.give(given, in_arguments)
    assert (reported, config.unread()) == (says, {})


@pytest.mark.parametrize("opt", [{"lr": 0.5, "wd": 1.0}, argparse.Namespace(lr=0.5, wd=1.0), Opt(0.5)])
def test_a_part_of_a_configuration_may_be_given(opt: Any) -> None:
    config, reported = _config({"opt": opt})
    before = copy.deepcopy(opt)
    config.give({"opt/lr": 0.1}, ())
    assert reported["opt/lr"] == 0.5
    read = config.opt
    assert ((read["lr"] if isinstance(read, dict) else read.lr), reported["opt/lr"]) == (0.1, 0.1)
    # The script's own object is as it was.
    assert opt == before


@pytest.mark.parametrize(
    ("summary", "goal", "comes_to"),
    [
        ("max", "", {"val/acc": 4.0}),
        ("min", "", {"val/acc": 1.0}),
        ("mean", "", {"val/acc": 2.5}),
        ("first", "", {"val/acc": 3.0}),
        ("last", "", {"val/acc": 2.0}),
        ("copy", "", {"val/acc": 2.0}),
        ("best", "maximize", {"val/acc": 4.0}),
        ("best", "", {"val/acc": 1.0}),
        ("none", "", {}),
        ("min, max", "", {"val/acc/min": 1.0, "val/acc/max": 4.0}),
    ],
)
@pytest.mark.parametrize("name", ["val/acc", "val/*", "*"])
def test_what_a_metric_comes_to(name: str, summary: str, goal: str, comes_to: dict[str, float]) -> None:
    aggregates = Aggregates()
    aggregates.define(name, summary, goal)
    for values in ([3.0, nan], [4.0, 1.0], [2.0]):
        aggregates.add("val/acc", values)
    assert aggregates.take() == pytest.approx(comes_to)
    assert aggregates.take() == {}


def test_a_metrics_own_definition_goes_before_patterns() -> None:
    aggregates = Aggregates()
    aggregates.define("val/acc", "max")
    aggregates.define("val/*", "min")
    for name in ("val/acc", "val/loss", "loss"):
        aggregates.add(name, [1.0, 2.0])
    assert aggregates.take() == {"val/acc": 2.0, "val/loss": 1.0}


def test_a_run_that_goes_on_keeps_what_it_came_to() -> None:
    aggregates = Aggregates()
    aggregates.restore({"acc": 0.9, "gap": "inf", "other": "text"})
    aggregates.define("*", "max")
    for name in ("acc", "gap"):
        aggregates.add(name, [0.5])
    assert aggregates.take() == {"acc": 0.9, "gap": inf}


def test_a_full_disk_under_stderr_stops_no_script(monkeypatch: pytest.MonkeyPatch) -> None:
    full = os.fdopen(os.open("/dev/full", os.O_WRONLY), "w", buffering=1)
    monkeypatch.setattr(sys, "stderr", full)
    with pytest.raises(OSError, match="No space left"):
        print("as a script's own line", file=sys.stderr)
    tuiapp.nothing_of_that_name()
    with suppress(OSError):
        full.close()
