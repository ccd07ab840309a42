"""The processes of this machine, as the list shows them."""

from __future__ import annotations

import getpass
import os
import sys
from subprocess import PIPE, Popen

from tuiapp.library.processes import ProcessReader

BUSY = "import sys, time; print(flush=True)\nwhile True: sys.stdin.closed"


def test_a_busy_process_is_seen_with_its_user_command_and_use() -> None:
    reader = ProcessReader()
    with Popen([sys.executable, "-c", BUSY, "an argument"], stdout=PIPE, stdin=PIPE) as busy:
        try:
            assert busy.stdout
            busy.stdout.readline()
            first = reader.read()[busy.pid]
            assert first.cpu_percent is None
            assert first.parent == os.getpid()
            assert first.user == getpass.getuser()
            assert first.memory_bytes > 1 << 20
            assert first.command.startswith(os.path.basename(sys.executable))
            assert "an argument" in first.command
            while not reader.read()[busy.pid].cpu_percent:
                pass
        finally:
            busy.kill()
    assert busy.pid not in reader.read()
