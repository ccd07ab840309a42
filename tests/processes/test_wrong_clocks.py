"""Machines whose clocks are an hour apart: a node beside the supervisor, and one on which somebody watches the run."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.kit import wrong_clock
from tests.kit.harness import launched
from tests.kit.nodes import agent
from tests.processes.test_nodes import NAMED_S, ON_TWO
from tuiapp.trainers.contract.events import Alert, HostSample, LogLine, Metrics

pytestmark = pytest.mark.nightly

TRAINED = msgspec.structs.replace(ON_TWO, checkpoint_every=0)
LATE_S = 5.0
"""What a loaded machine may take to report something."""


@pytest.mark.parametrize("ahead_s", [3600, -3600])
def test_what_a_node_with_a_wrong_clock_reports_has_the_supervisors_time(
    runs_dir: Path, tmp_path: Path, fake: Callable[..., None], monkeypatch: pytest.MonkeyPatch, ahead_s: int
) -> None:
    fake("talk:1:1")
    clock = wrong_clock.environment(tmp_path, ahead_s)
    with launched(TRAINED, runs_dir) as run:
        for name, value in clock.items():
            monkeypatch.setenv(name, value)
        with agent(run):
            run.at_step(50)
            run.wait(HostSample, lambda sample: sample.node == 1)
            assert [line for line in run.of(LogLine) if line.node == 1]
            assert {event.node for event in run.of(Metrics)} == {0, 1}
            newest, now = 0.0, time.time()
            for event in run.events:
                # Metrics have the time of their batch.
                assert newest - LATE_S < event.time < now + 1, event
                newest = max(newest, event.time)
            assert not [alert for alert in run.of(Alert) if alert.kind == "node"]
            os.kill(run.pid(1), signal.SIGKILL)
            ended = run.end(NAMED_S)
            assert ended.reason.startswith("rank 1 on node 1 was killed by SIGKILL")
            assert ended.summary.seconds < 600
        run.wait_gone()
