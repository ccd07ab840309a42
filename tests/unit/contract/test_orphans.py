"""Processes of a run are found by the token in their environment, and ended; others are left alone."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psutil
import pytest

from tuiapp.trainers.contract.orphans import TOKEN, kill_tagged, tagged_processes

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
WITH_GRANDCHILD = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-S", "-c", {SLEEP!r}], stdout=subprocess.PIPE, start_new_session=True)
child.stdout.readline()
print(child.pid, flush=True)
{{then}}
"""


@pytest.fixture
def token() -> str:
    return f"20261120T101500-torch-ddp-net-3fa1-{secrets.token_hex(8)}"


@contextmanager
def process(token: str, code: str = SLEEP) -> Iterator[tuple[subprocess.Popen[bytes], bytes]]:
    """A real process that carries a token, and the first line that it printed."""
    command = [sys.executable, "-S", "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, TOKEN: token}) as started:
        assert started.stdout is not None
        try:
            yield started, started.stdout.readline()
        finally:
            started.kill()


def wait_gone(pid: int) -> None:
    deadline = time.monotonic() + 60
    while _is_there(pid):
        assert time.monotonic() < deadline
        time.sleep(0.002)


def _is_there(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_those_with_the_token_and_no_others(token: str) -> None:
    with ExitStack() as stack:
        ours = [stack.enter_context(process(token))[0] for _ in range(3)]
        others = [stack.enter_context(process(other))[0] for other in (token + "0", token[:-1], "", f"x{token}")]
        assert sorted(tagged_processes(token)) == sorted(one.pid for one in ours)
        assert sorted(kill_tagged(token)) == sorted(one.pid for one in ours)
        assert [one.wait() for one in ours] == [-signal.SIGKILL] * 3
        assert [one.poll() for one in others] == [None] * 4
        assert tagged_processes(token) == []
        assert kill_tagged(token) == []


def test_a_stopped_process_too(token: str) -> None:
    with process(token) as (stopped, _):
        stopped.send_signal(signal.SIGSTOP)
        assert kill_tagged(token) == [stopped.pid]
        assert stopped.wait() == -signal.SIGKILL


@pytest.mark.parametrize("then", ["import time; time.sleep(600)", "raise SystemExit"])
def test_what_a_rank_started_in_a_session_of_its_own(token: str, then: str) -> None:
    with process(token, WITH_GRANDCHILD.format(then=then)) as (parent, line):
        grandchild = int(line)
        if "SystemExit" in then:
            parent.wait()
            assert tagged_processes(token) == [grandchild]
        killed = kill_tagged(token)
        assert set(killed) == ({grandchild} if "SystemExit" in then else {grandchild, parent.pid})
        wait_gone(grandchild)
        assert tagged_processes(token) == []


def test_a_zombie_is_not_waited_for(token: str) -> None:
    with process(token) as (dead, _):
        os.kill(dead.pid, signal.SIGKILL)
        wait_gone(dead.pid)
        began = time.monotonic()
        assert kill_tagged(token, timeout_s=120) == []
        assert time.monotonic() - began < 60
