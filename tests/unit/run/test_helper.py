"""A reaper that dies, and is started again; and what the kernel tells of its out-of-memory killer."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tuiapp.trainers.contract.events import Alert, Event, RankFailed
from tuiapp.trainers.run.children import RETRY_S, Helper
from tuiapp.trainers.run.rank_end import KEEP_S, OomWatch, hint
from tuiapp.trainers.state.messages import describe_failure


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


def counter(path: Path, count: int, name: str = "oom_kill") -> None:
    path.write_text(f"oom 7\n{name} {count}\nother 1\n")


def test_the_killer_is_named_when_it_struck_lately(tmp_path: Path) -> None:
    path = tmp_path / "memory.events"
    counter(path, 4)
    watch = OomWatch(100.0, [path])
    assert watch.oom_killed() is False
    # Long ago is no news.
    counter(path, 5)
    for second in range(100, 100 + 4 * int(KEEP_S)):
        watch.poll(float(second))
    assert watch.oom_killed() is False
    counter(path, 6)
    watch.poll(100 + 5 * KEEP_S)
    assert watch.oom_killed() is True


@pytest.mark.parametrize("content", [None, "", "oom 1\n", "oom_kill x\n", "\xff"])
def test_a_kernel_that_tells_nothing(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "memory.events"
    if content is not None:
        path.write_text(content)
    assert OomWatch(0.0, [path]).oom_killed() is None
    assert OomWatch(0.0, []).oom_killed() is None


def test_a_real_kernel_can_be_asked() -> None:
    assert OomWatch(time.monotonic()).oom_killed() in (None, False)


@pytest.mark.parametrize(
    ("oom_killed", "words"),
    [
        (True, "was killed by SIGKILL at step 7 — by the kernel's out-of-memory killer"),
        (False, "was killed by SIGKILL at step 7 — not by the kernel's out-of-memory killer"),
        (None, "was killed by SIGKILL at step 7 — the kernel's out-of-memory killer?"),
    ],
)
def test_in_words(oom_killed: bool | None, words: str) -> None:
    failed = RankFailed(rank=2, signal="SIGKILL", step=7, hint=hint(oom_killed))
    assert describe_failure(failed) == f"rank 2 {words}"
