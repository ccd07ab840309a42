"""A reaper that dies, and is started again."""

from __future__ import annotations

import subprocess
import sys

from tuiapp.trainers.contract.events import Alert, Event
from tuiapp.trainers.run.children import RETRY_S, Helper


class Starts:
    """Starts processes that end at once, or cannot be started."""

    def __init__(self, code: str = "raise SystemExit(3)") -> None:
        self.code = code
        self.error: OSError | None = None
        self.count = 0

    def __call__(self) -> subprocess.Popen[bytes]:
        self.count += 1
        if self.error:
            raise self.error
        return subprocess.Popen([sys.executable, "-S", "-c", self.code])


def test_it_is_started_again_and_told_once() -> None:
    starts, said = Starts(), list[Event]()
    keeper = Helper("reaper", starts, said.append, "training continues")
    keeper.advance(100.0)
    for number in range(1, 4):
        now = 100.0 + number * RETRY_S
        assert keeper.process is not None
        keeper.process.wait(30)
        keeper.advance(now - 0.1)
        assert starts.count == number
        keeper.advance(now)
        assert starts.count == number + 1
    (alert,) = said
    assert isinstance(alert, Alert)
    assert alert.text == "the reaper ended with exit code 3; training continues. It is started again"
    keeper.end()


def test_one_that_cannot_be_started_is_tried_again() -> None:
    starts, said = Starts("import time; time.sleep(600)"), list[Event]()
    starts.error = BlockingIOError(11, "Resource temporarily unavailable")
    keeper = Helper("reaper", starts, said.append, "training continues")
    for second in range(100):
        keeper.advance(float(second))
    assert starts.count == 100 / RETRY_S
    (alert,) = said
    assert isinstance(alert, Alert)
    assert "the reaper cannot be started: Resource temporarily unavailable" in alert.text
    starts.error = None
    keeper.advance(1000.0)
    assert keeper.process is not None
    keeper.end()
    assert keeper.process.poll() == -9
