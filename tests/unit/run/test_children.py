"""A reaper that dies, or cannot be started, is started again, which is told once."""

from __future__ import annotations

import sys
from pathlib import Path

from tuiapp.trainers.contract.events import Alert, Event
from tuiapp.trainers.run.children import RETRY_S, ChildProcess


def test_it_is_started_again_and_told_once(tmp_path: Path) -> None:
    said, log = list[Event](), tmp_path / "log"
    command = [sys.executable, "-S", "-c", "print('up'); raise SystemExit(3)"]
    child = ChildProcess("reaper", command, log, said.append, "training continues")
    child.advance(100.0)
    for number in range(1, 4):
        now = 100.0 + number * RETRY_S
        assert child.process is not None
        child.process.wait(30)
        child.advance(now - 0.1)
        assert child.process is None
        child.advance(now)
        assert log.read_text().count("up") >= number
    (alert,) = said
    assert isinstance(alert, Alert)
    assert alert.text == "the reaper ended with exit code 3; training continues. It is started again"
    child.end()


def test_one_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    said, command = list[Event](), tmp_path / "reaper"
    child = ChildProcess("reaper", [str(command)], tmp_path / "log", said.append, "training continues")
    for second in range(100):
        child.advance(float(second))
    (alert,) = said
    assert isinstance(alert, Alert)
    assert "the reaper cannot be started: No such file or directory" in alert.text
    command.write_text("#!/bin/sh\nexec sleep 600\n")
    command.chmod(0o700)
    child.advance(1000.0)
    assert child.process is not None
    child.end()
    assert child.process.poll() == -9
