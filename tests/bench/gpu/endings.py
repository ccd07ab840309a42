"""How a run ends and goes on, and how soon the GPU is free then."""

from __future__ import annotations

import os
import signal
import time
from unittest.mock import patch

from tests.bench.gpu.box import FREED_S, Box
from tests.kit import ROOT
from tests.kit.harness import resumed
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import Checkpoint, RankFailed

RAISED_S = 30.0
"""Far less than NCCL's own limit."""

STEPS = 20
"""Made before anything is asked."""


def endings(box: Box) -> None:
    before = box.used_bytes()
    with box.endless(model="net") as run:
        run.at_step(STEPS)
        sidecars.send_command(run.run.commands, "checkpoint")
        asked = run.wait(Checkpoint)
        sidecars.send_command(run.run.commands, "stop")
        end = run.end()
        box.find.holds("a stopped run says so", end.status == "stopped", end.reason or end.status)
        saved = run.of(Checkpoint)[-1].step
        box.find.holds("it saves on request, and when it stops", STEPS <= asked.step < saved, f"{asked.step}, {saved}")
        freed = box.time_until_free(before, [run], end.mono)
        box.find.at_most("stop: s until memory is free", freed, FREED_S, ".2f")
    for victim in ("a rank", "the supervisor"):
        with resumed(run.run) as again:
            again.at_step(saved + STEPS)
            first = again.steps_of(0)[0]
            box.find.holds(f"before kill -9 of {victim} it goes on from the checkpoint", first == saved + 1, first)
            killed = time.monotonic()
            os.kill(again.pid(0) if victim == "a rank" else again.started.pid, signal.SIGKILL)
            freed = box.time_until_free(before, [again], killed)
            box.find.at_most(f"kill -9 of {victim}: s until memory is free", freed, FREED_S, ".2f")
            if victim == "a rank":
                box.find.holds("a run whose rank is killed has failed", again.end().status == "failed")
    a_rank_raises(box)


def a_rank_raises(box: Box) -> None:
    """The last one of two, where there are two: NCCL must not hold its error back."""
    devices = 2 if box.on_cpu else min(2, len(box.gpus))
    places = {"PYTHONPATH": str(ROOT / "tests/kit/faults"), "TUIAPP_TEST_FAULT": f"raise:{devices - 1}:{STEPS}"}
    with (
        patch.dict(os.environ, places),
        box.endless(model="net", devices=devices, device_ids=box.gpus[:devices]) as run,
    ):
        end = run.end(RAISED_S)
        named = end.failed_rank == devices - 1 and "ValueError: the test's own failure" in end.reason
        box.find.holds("a rank that raises is named with its error", named, end.reason)
        step = run.of(RankFailed)[0].mono
        box.find.at_most("s from its failure to the run's end", end.mono - step, RAISED_S, ".2f")
