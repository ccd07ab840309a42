"""A runs directory on a file system of another machine: slow, late, failing for a while, its locks unknown here."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kit.harness import MLP, Watched, launched
from tests.kit.slow_disk import SlowDisk, Trouble, slow_disk
from tests.kit.terminal import Terminal
from tuiapp.trainers.contract import sidecars

pytestmark = pytest.mark.nightly

TUIAPP = [sys.executable, "-P", "-m", "tuiapp"]
ELSEWHERE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
"""What a machine is recognised by: its boot, and the namespace of its processes."""


ANSWERED_S = 2.5
"""Whoever waits for the directory makes ten calls and more, of 0.3 s each; a loaded machine takes a second."""


class Key(NamedTuple):
    name: str
    answer: str
    """What shows that it was taken."""
    then: str = ""
    """What comes once the directory has answered; Escape closes it."""


def press(terminal: Terminal, keys: Iterable[Key], *, stay: bool = True, within_s: float = ANSWERED_S) -> None:
    """Presses keys one after the other; fails if one is answered late."""
    late = []
    for key in keys:
        began = time.monotonic()
        terminal.press(key.name)
        terminal.wait(key.answer)
        took = time.monotonic() - began
        print(f"{key.name}: {1e3 * took:.0f} ms")
        late += [f"{key.name}: {took:.1f} s"] * (took > within_s)
        if key.then:
            terminal.wait(key.then)
        if stay and key.name not in ("S", "g", "p"):
            terminal.press("escape")
            terminal.wait_gone(key.then or key.answer)
        if key.then:
            terminal.wait_gone("answers slowly")
    assert not late


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SlowDisk]:
    if shutil.which("unshare") is None:
        pytest.skip("needs util-linux")
    place = tmp_path / "disk"
    place.mkdir()
    with slow_disk(place) as made:
        yield made


def attached(disk: SlowDisk, run: Watched) -> Terminal:
    """The dashboard on another machine."""
    command = [*ELSEWHERE, *TUIAPP, "attach", run.run.run_id, "--runs-dir", str(disk.path)]
    return Terminal(command, columns=240, environment={"LANG": "C.UTF-8"})


def status(disk: SlowDisk) -> str:
    """What another machine lists."""
    command = [*ELSEWHERE, *TUIAPP, "runs", "--json", "--runs-dir", str(disk.path)]
    (run,) = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)
    return str(run["status"])


def test_a_run_of_another_machine_is_running_and_then_not(disk: SlowDisk, fake: Callable[..., None]) -> None:
    fake()
    with launched(MLP, disk.backing) as run:
        run.at_step(3)
        assert status(disk) == "running"
        sidecars.send_command(run.run.commands, "stop")
        run.end()
        run.wait_gone()
        assert status(disk) == "stopped"


def test_keys_that_ask_the_directory_are_answered_while_it_is_slow(disk: SlowDisk, fake: Callable[..., None]) -> None:
    fake()
    with launched(MLP, disk.backing) as run:
        run.at_step(50)
        disk.be(Trouble(delay_s=0.3, long_s=5.0))
        with attached(disk, run) as terminal:
            terminal.wait("RUNNING", 60)
            keys = [
                Key("s", "Stop this run"),
                Key("q", "A run is live"),
                Key("S", "answers slowly", "Requested a checkpoint"),
                Key("i", "answers slowly", "Tags"),
                Key("g", "Looking for runs"),
            ]
            press(terminal, keys)
            sidecars.send_command(run.run.commands, "stop")
            run.end()
            terminal.wait("stopped", 120)
            keys = [
                Key("u", "answers slowly", "Resume 20"),
                Key("e", "Export "),
                Key("i", "answers slowly", "Tags"),
                Key("p", "PAUSED|REPLAY|[Rr]eplay"),
            ]
            press(terminal, keys)


def test_leaving_does_not_wait_for_a_directory_that_does_not_answer(disk: SlowDisk, fake: Callable[..., None]) -> None:
    fake()
    with launched(MLP, disk.backing) as run:
        run.at_step(3)
        with attached(disk, run) as terminal:
            terminal.wait("RUNNING", 60)
            disk.be(Trouble(delay_s=30.0))
            press(terminal, [Key("q", "A run is live")], stay=False, within_s=10.0)
            # The process itself can only go once FUSE has answered its threads.
            began = time.monotonic()
            terminal.press("enter")
            terminal.wait("continues. Watch it")
            print(f"left after {time.monotonic() - began:.1f} s")
            assert time.monotonic() - began < 5.0
            assert terminal.restored()
            disk.be(Trouble())
