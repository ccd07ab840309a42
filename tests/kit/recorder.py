"""Stands in for a reporter where a backend is called in the test's own process."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from math import isclose
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt

from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.plan import Plan, make_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.evaluations import Evaluated
from tuiapp.trainers.contract.events import (
    Alert,
    Held,
    InitialWeights,
    Predictions,
    Profile,
    Replicas,
    Sharding,
    StepMemory,
)
from tuiapp.trainers.contract.media import Content
from tuiapp.trainers.rank.checkpoints import Checkpoints, Patience, Saved
from tuiapp.trainers.rank.evaluation import WORST
from tuiapp.trainers.rank.reporter import Profiler, Reporter
from tuiapp.trainers.rank.tensor_files import Tensors
from tuiapp.trainers.sources.datasets import normalized

DEVICES = 7
JAX_BACKENDS = [name for name, backend in BACKENDS.items() if "jax" in backend.packages]
ONE_PROCESS = [*JAX_BACKENDS, "mxnet-gluon"]
"""One process owns all CPU devices."""


class Recorder:
    """Keeps what a backend tells."""

    rank = 0
    profiles: Path | None = None
    profile_at: tuple[int, int] | None = None
    """Before which step to begin to profile, and for how many."""

    def __init__(self) -> None:
        self.convert: Callable[[list[Any]], list[list[float]]]
        self.at_close: Callable[[], None]
        self.ranks: list[tuple[int | None, str]] = []
        self.phases: list[str] = []
        self.steps: list[SimpleNamespace] = []
        self.evaluated: tuple[int, Evaluated] | None = None
        self.evaluations: list[SimpleNamespace] = []
        self.named: list[tuple[int, dict[str, Any]]] = []
        """Metrics beside those of steps and evaluations, with their steps."""
        self.found: list[Predictions] = []
        self.shown: list[Content] = []
        """The pictures of the last evaluation."""
        self.compared: list[Replicas] = []
        self.initial: InitialWeights | None = None
        self.alerts: list[Alert] = []
        self.arrays: dict[str, Sharding] = {}
        self.held: list[Held] = []
        self.profiler: Profiler | None = None
        self.profiled: list[Profile] = []
        self.step_memory: StepMemory | None = None
        self.stop_at = 0
        self.save_at: int | None = None

    def rank_started(self, device: str, device_name: str = "", uuid: str = "", number: int | None = None) -> None:
        self.ranks.append((number, device))

    def phase(self, phase: str) -> None:
        self.phases.append(phase)

    def restart_clock(self) -> None:
        pass

    def save_before(self, step: int) -> bool:
        return step - 1 == self.save_at

    def profile_before(self, step: int) -> int:
        return self.profile_at[1] if self.profile_at and step == self.profile_at[0] else 0

    def save_due(self, step: int) -> bool:
        return False

    def stop_before(self, step: int) -> bool:
        return step == self.stop_at

    def step(
        self,
        step: int,
        loss: Any,
        examples: float,
        learning_rate: float,
        gradient_norm: Any = None,
        waited_s: float = 0.0,
    ) -> None:
        self.steps.append(
            SimpleNamespace(
                step=step, loss=loss, examples=examples, learning_rate=learning_rate, gradient_norm=gradient_norm
            )
        )

    def evaluation(self, step: int, examples: int, figures: Mapping[str, float], own: str = "") -> None:
        self.evaluations.append(SimpleNamespace(step=step, examples=examples, **figures))

    def metrics(self, step: int, values: Mapping[str, Any]) -> None:
        self.named.append((step, dict(values)))

    def send_from_rank0(self, found: Predictions | Replicas | InitialWeights | Alert) -> None:
        match found:
            case Predictions():
                self.found.append(found)
            case InitialWeights():
                self.initial = found
            case Replicas():
                self.compared.append(found)
            case Alert():
                self.alerts.append(found)

    def show(self, name: str, step: int, read: Callable[[], list[Content]]) -> None:
        self.shown = read()

    def send(self, event: Sharding | Held | Profile) -> None:
        if isinstance(event, Profile):
            self.profiled.append(event)
        elif isinstance(event, Held):
            self.held.append(event)
        else:
            self.arrays[event.array] = msgspec.structs.replace(event, time=0.0, mono=0.0)

    def losses(self) -> list[list[float]]:
        """Step by step, each device's."""
        return self.convert([step.loss for step in self.steps])


class Shelf:
    """Stands in for the checkpoints: keeps them in memory."""

    def __init__(self, resumed: Saved | None = None) -> None:
        self.resumed = resumed
        self.patience = Patience("accuracy", 0)
        self.saved: dict[int, Saved] = {}
        self.exported: Tensors = {}

    def save(self, step: int, model: Tensors, state: Tensors, ready: Callable[[], object]) -> None:
        ready()
        self.saved[step] = Saved(step, dict(model), dict(state))

    def export(self, model: Tensors) -> None:
        self.exported = model

    def best_model(self) -> None:
        return None

    def export_file(self, name: str, write: Callable[[Path], object]) -> None:
        with tempfile.TemporaryDirectory() as directory:
            write(Path(directory) / name)


def train(config: RunConfig, stop_at: int = 0, save_at: int | None = None, shelf: Shelf | None = None) -> Recorder:
    """Train here, on this process's devices; gives what was told.

    Args:
        config: With devices made exact.
        stop_at: The step before which to stop; 0 for none.
        save_at: Save to the shelf after this step; 0 is before the first.
        shelf: Where to save, and what to go on from.
    """
    return train_plan(make_plan(config), stop_at, save_at, shelf)


def train_plan(plan: Plan, stop_at: int = 0, save_at: int | None = None, shelf: Shelf | None = None) -> Recorder:
    """Trains as `train` does; in an interpreter of its own where the framework has none of this one."""
    recorder, backend = Recorder(), BACKENDS[plan.config.backend]
    plan = normalized(plan)
    recorder.stop_at, recorder.save_at = stop_at, save_at
    if find_spec(backend.packages[0]) is None:
        # Needs pytest, which that interpreter lacks.
        from tests.kit.elsewhere import train_elsewhere

        train_elsewhere(plan, recorder, shelf or Shelf())
    else:
        module = importlib.import_module(backend.module)
        module.train(plan, 0, cast(Reporter, recorder), cast(Checkpoints, shelf or Shelf()))
    return recorder


def check_predictions(found: Predictions, accuracy: float, labels: npt.NDArray[np.int64]) -> None:
    """Compares predictions on a test set with its labels, int64 [N], and with the accuracy reported."""
    counts = np.array(found.counts)
    np.testing.assert_array_equal(counts.sum(1), np.bincount(labels))
    assert isclose(counts.trace() / len(labels), accuracy, rel_tol=1e-6)
    assert len({one.number for one in found.worst}) == len(found.worst) == WORST
    assert [one.loss for one in found.worst] == sorted([one.loss for one in found.worst], reverse=True)
    for one in found.worst:
        assert labels[one.number] == one.label
        assert counts[one.label, one.predicted] > 0
