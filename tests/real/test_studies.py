"""A scaling study and a shoot-out, whole: queued, run one after the other, and made into tables."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.kit.harness import Watched
from tests.kit.waiting import wait_until
from tuiapp.trainers.contract.lock import is_held
from tuiapp.trainers.experiments.queue import QueueFiles
from tuiapp.trainers.experiments.study import runs_of_group

pytestmark = pytest.mark.nightly

TIMEOUT_S = 400


def _study(runs_dir: Path, *words: str) -> dict[str, Any]:
    command = [
        sys.executable,
        "-P",
        "-m",
        "tuiapp",
        *words,
        "--set",
        "platform=cpu",
        "--json",
        "--runs-dir",
        str(runs_dir),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: not is_held(QueueFiles(runs_dir).lock), 60)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.by_hand
def test_scaling_on_two_devices(runs_dir: Path) -> None:
    found = _study(runs_dir, "scale", "mlp", "--devices", "1,2", "--steps", "40", "--repeat", "2", "--name", "mine")
    one, two = found["rows"]
    assert [(row["devices"], row["runs"], row["counted"]) for row in (one, two)] == [(1, 2, 2), (2, 2, 2)]
    assert min(row["throughput"] for row in (one, two)) > 0
    assert 0 < two["waiting"] < 1
    assert (one["waiting"], one["efficiency"]) == (None, 1.0)
    assert two["memory_bytes"] > one["memory_bytes"] > 50 << 20
    runs = [Watched(run) for run in runs_of_group(runs_dir, "mine")]
    turns = sorted((run.started.time, run.end().time, run.started.world_size) for run in runs)
    assert [devices for *_, devices in turns] == [1, 2, 1, 2]
    assert all(end < begin for (_, end, _), (begin, _, _) in pairwise(turns)), "each ran alone"
