"""Trains in another interpreter as `recorder.train_plan` does in this one, which has another NumPy.

`python -m tests.kit.elsewhere DIR` is run by that interpreter; files in DIR carry what goes in and comes out.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np

from tests.kit import ROOT
from tests.kit.recorder import Recorder, Shelf, train_plan
from tuiapp.trainers.config.plan import Plan, read_plan, write_plan
from tuiapp.trainers.contract.events import InitialWeights, Predictions, Sharding
from tuiapp.trainers.rank.checkpoints import Saved


class Job(msgspec.Struct):
    stop_at: int
    save_at: int | None
    resumed: int | None
    """The step of `resumed.npz`."""


class Told(msgspec.Struct):
    ranks: list[tuple[int | None, str]]
    phases: list[str]
    steps: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    found: list[Predictions]
    arrays: dict[str, Sharding]
    saved: list[int]
    initial: InitialWeights | None


def train_elsewhere(plan: Plan, recorder: Recorder, shelf: Shelf) -> None:
    """Fills recorder and shelf; raises ValueError with what the interpreter said if it failed."""
    from tests.kit.mxnet_environment import interpreter_of
    from tuiapp.trainers.run.rank_environment import Rendezvous, rank_environment

    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_plan(directory / "plan.json", plan)
        if shelf.resumed:
            _write(directory / "resumed.npz", shelf.resumed)
        job = Job(recorder.stop_at, recorder.save_at, shelf.resumed.step if shelf.resumed else None)
        (directory / "job.json").write_bytes(msgspec.json.encode(job))
        environment = {**rank_environment(plan, "token", Rendezvous(0)), "PYTHONPATH": str(ROOT)}
        command = [interpreter_of(plan.config.backend), "-P", "-m", "tests.kit.elsewhere", name]
        done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise ValueError(done.stderr)
        told = msgspec.json.decode((directory / "told.json").read_bytes(), type=Told)
        for step in told.saved:
            shelf.saved[step] = _read(directory / f"saved-{step}.npz", step)
    recorder.ranks, recorder.phases = told.ranks, told.phases
    recorder.steps = [SimpleNamespace(**made) for made in told.steps]
    recorder.evaluations = [SimpleNamespace(**one) for one in told.evaluations]
    recorder.found, recorder.arrays, recorder.initial = told.found, told.arrays, told.initial
    recorder.convert = list


def main() -> None:
    """Trains, in the other interpreter."""
    directory = Path(sys.argv[1])
    job = msgspec.json.decode((directory / "job.json").read_bytes(), type=Job)
    shelf = Shelf(None if job.resumed is None else _read(directory / "resumed.npz", job.resumed))
    recorder = train_plan(read_plan(directory / "plan.json"), job.stop_at, job.save_at, shelf)
    for step, saved in shelf.saved.items():
        _write(directory / f"saved-{step}.npz", saved)
    for made, losses in zip(recorder.steps, recorder.losses(), strict=True):
        made.loss, made.learning_rate = losses, float(made.learning_rate)
        made.gradient_norm = made.gradient_norm and recorder.convert([made.gradient_norm])[0]
    told = Told(
        recorder.ranks,
        recorder.phases,
        [vars(made) for made in recorder.steps],
        [vars(one) for one in recorder.evaluations],
        recorder.found,
        recorder.arrays,
        list(shelf.saved),
        recorder.initial,
    )
    (directory / "told.json").write_bytes(msgspec.json.encode(told))


def _write(path: Path, saved: Saved) -> None:
    named: dict[str, Any] = {
        f"{part}/{name}": array for part in ("model", "state") for name, array in getattr(saved, part).items()
    }
    np.savez(path, **named)


def _read(path: Path, step: int) -> Saved:
    parts: dict[str, dict[str, Any]] = {"model": {}, "state": {}}
    with np.load(path, allow_pickle=False) as arrays:
        for key in arrays.files:
            part, _, name = key.partition("/")
            parts[part][name] = arrays[key]
    return Saved(step, **parts)


if __name__ == "__main__":
    main()
