"""The reaper: it is started again when it dies, and does all it has to do though the disk is full."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.unit.contract.test_orphans import process
from tuiapp.trainers.config.settings import Settings
from tuiapp.trainers.contract.events import Alert, Event
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import write_notification_config
from tuiapp.trainers.run.children import RETRY_S, ChildProcess

DEADLINE_S = 60.0
TOKEN = "20261120T101500-torch-ddp-net-3fa1-0123456789abcdef"


class Refuses(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def refusing() -> Iterator[str]:
    """The address of a server that takes nothing."""
    server = HTTPServer(("127.0.0.1", 0), Refuses)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("refused", [False, True])
def test_a_full_disk_does_not_keep_the_end_from_being_told(tmp_path: Path, refusing: str, refused: bool) -> None:
    run, told = RunDir(tmp_path / "run"), tmp_path / "told"
    run.path.mkdir()
    # The server's refusal is something that cannot be logged either.
    command = (sys.executable, "-S", "-c", f"open({str(told)!r}, 'w')")
    write_notification_config(run, Settings(command=command, webhook=refusing if refused else ""))
    with process(TOKEN) as (rank, _), open("/dev/full", "wb") as full:
        # This process's parent is somebody else: so it looks to a reaper whose supervisor has died.
        reap = [sys.executable, "-P", "-m", "tuiapp.trainers.run.reaper", str(rank.pid), TOKEN, str(run.path)]
        assert subprocess.run(reap, stdin=subprocess.DEVNULL, stdout=full, stderr=full, check=False).returncode == 0
        assert rank.wait() < 0
    deadline = time.monotonic() + DEADLINE_S
    while not told.exists():
        assert time.monotonic() < deadline, "nobody was told"
        time.sleep(0.01)


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
