"""The reaper does all it has to do though supervisor.log is on a disk that is full."""

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
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import write_notification_config

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
