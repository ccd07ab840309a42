"""What is told of a hang, in its order. Time is the test's own; the rank is a real process that gives no stacks."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.fake_ranks import Process
from tests.kit.waiting import wait_until
from tuiapp.trainers.config.options import HANG_VARIABLE
from tuiapp.trainers.contract.events import Alert, Event, LogLine
from tuiapp.trainers.run.watchdog import ANSWER_S, Watchdog
from tuiapp.trainers.run.wire import Heartbeat

MUTE = """
import signal, time
signal.signal(signal.SIGUSR2, lambda *_: None)
print("up", flush=True)
while True:
    time.sleep(600)
"""


@pytest.mark.parametrize("back_after_s", [1, ANSWER_S + 2])
def test_a_hang_is_told_before_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back_after_s: float) -> None:
    monkeypatch.setenv(HANG_VARIABLE, "10")
    said: list[Event] = []
    watchdog = Watchdog(said.append, lambda rank: "node 0, gpu01")
    with subprocess.Popen([sys.executable, "-S", "-c", MUTE], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            live, began = {0: Process(process.pid, tmp_path)}, 1000
            for second in range(began, began + 19):
                # It goes on a moment after it was asked for its stacks, or long after that.
                step = 5 if second < began + 10 + back_after_s else 6
                watchdog.on_heartbeat(Heartbeat(0, step, "training"), float(second))
                watchdog.advance(float(second), live)
        finally:
            process.kill()
    alerts = [event for event in said if isinstance(event, Alert)]
    assert [(alert.kind, alert.ended) for alert in alerts] == [("hang", False), ("hang", True)]
    lines = [event.text for event in said if isinstance(event, LogLine)]
    assert lines == ["rank 0 (node 0, gpu01) gave no Python stacks"]


def test_a_stopped_rank_is_named_with_its_node(tmp_path: Path) -> None:
    said: list[Event] = []
    watchdog = Watchdog(said.append, lambda rank: "node 0, gpu01")
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            process.send_signal(signal.SIGSTOP)
            live = {3: Process(process.pid, tmp_path)}
            wait_until(live[3].is_stopped, 30)
            for second in range(1000, 1015):
                watchdog.on_heartbeat(Heartbeat(3, 5, "training"), 1000.0)
                watchdog.advance(float(second), live)
        finally:
            process.kill()
    (alert,) = said
    assert isinstance(alert, Alert)
    assert alert.text.startswith("rank 3 (node 0, gpu01) is stopped ")


def test_a_rank_that_has_ended_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HANG_VARIABLE, "10")
    said: list[Event] = []
    watchdog = Watchdog(said.append)
    watchdog.note_end(1)
    for second in range(1000, 1013):
        watchdog.on_heartbeat(Heartbeat(0, 5, "training"), 1000.0)
        watchdog.advance(float(second), {})
    (alert,) = [event for event in said if isinstance(event, Alert)]
    assert alert.text.endswith("the rank is at step 5 (training); rank 1 has ended")
