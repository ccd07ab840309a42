"""Runs of studies as they leave their journals behind, with figures that are chosen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tests.kit import histories as h
from tests.kit.recorded import record
from tests.kit.reported import with_values
from tuiapp.trainers.config.run_config import RunConfig, to_toml_values
from tuiapp.trainers.contract.events import AnyEvent, Metrics, RankSample, RunEnded, RunStarted, Status, Summary
from tuiapp.trainers.contract.metrics import SYNC_WAIT
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import About, write_about
from tuiapp.trainers.experiments.study import Study, StudyDir

STEPS = 40
PACE_S = 0.05
GROUP = "study"


def recorded(
    runs_dir: Path,
    number: int,
    *,
    backend: str = "torch-ddp",
    devices: int = 1,
    rate: float = 1000.0,
    losses: Sequence[float] | None = None,
    waited: float | None = None,
    status: Status = "completed",
    **keys: Any,
) -> RunDir:
    """A run of 40 steps whose first one ends 3 s after its start; `waited` is a part of its steps."""
    config = RunConfig(backend=backend, platform="cpu", devices=devices, **keys)
    run_id = f"20261120T10{number:02}00-{backend}-net-{number:04x}"
    events: list[AnyEvent] = [msgspec.structs.replace(h.started(devices), config=to_toml_values(config))]
    last = 3.0 + (STEPS - 1) * PACE_S
    for rank in range(devices):
        events.append(h.rank_started(rank))
        events.append(RankSample(rank=rank, rss_bytes=(100 + rank) * h.MIB, threads=1, **h.at(2.5)))
        events.append(h.steps(rank, 1, STEPS, last, losses=losses or [1.0] * STEPS, pace=PACE_S))
        if waited is not None:
            wait: dict[str, list[float | None]] = {SYNC_WAIT: [waited * PACE_S]}
            events += [Metrics(rank=rank, first_step=step, values=wait, **h.at(last)) for step in (10, 20)]
    summary = Summary(steps=STEPS, examples_per_second=rate, loss=0.5, test_loss=0.6, test_accuracy=0.9, seconds=6.0)
    events.append(RunEnded(status=status, reason="out of memory", summary=summary, **h.at(6.0)))
    return _in_group(record(runs_dir, run_id, events, config))


def recorded_script(runs_dir: Path, number: int, devices: int, step_s: float) -> RunDir:
    """A script's run, which reports its loss alone, a step at a time; after its tenth part it takes `step_s` a step."""
    config = RunConfig(backend="script", script="/x/train.py", platform="cpu", devices=devices)
    began = RunStarted(
        run_id=f"20261120T11{number:02}00-script-train-{number:04x}", host="box", pid=1, config=to_toml_values(config),
        world_size=devices, **h.at(0),
    )  # fmt: skip
    events: list[AnyEvent] = [began]
    for step in range(1, 101):
        seconds = 20.0 + (step - 10) * step_s if step > 10 else 2.0 * step
        reported = with_values(h.steps(0, step, step, seconds), examples=None, step_time=None, lr=None)
        events.append(reported)
    events.append(RunEnded(status="completed", reason="", summary=Summary(steps=100, seconds=60.0), **h.at(60)))
    return _in_group(record(runs_dir, began.run_id, events, config))


def record_study(runs_dir: Path, study: Study) -> None:
    """The file of the study whose runs these are."""
    file = StudyDir(runs_dir, GROUP).file
    file.parent.mkdir(parents=True)
    file.write_bytes(msgspec.json.encode(study))


def _in_group(run: RunDir) -> RunDir:
    write_about(run, About(group=GROUP))
    return run
