"""Other nodes for tests: agents on this machine that reach the run by loopback, over a cable that can be cut."""

from __future__ import annotations

import os
import selectors
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import copy

import pytest

from tests.kit.harness import START_S, Watched
from tests.kit.waiting import wait_until
from tuiapp.trainers.contract.rundir import SECRET_VARIABLE

AGENT = (sys.executable, "-P", "-m", "tuiapp.trainers.run.node")


def address_of(run: Watched) -> tuple[str, int]:
    """Where a run waits for its nodes."""
    wait_until(run.run.port.exists, START_S)
    host, _, port = run.run.port.read_text().strip().rpartition(":")
    return host, int(port)


def without(hidden: Path, *command: str) -> list[str]:
    """The command that runs another one on a machine with another name, which lacks a directory of this one."""
    if os.getuid() or shutil.which("unshare") is None:
        pytest.skip("a file system of its own needs root and util-linux")
    prepare = 'hostname node-b && mount -t tmpfs none "$0" && exec "$@"'
    return ["unshare", "--mount", "--uts", "sh", "-c", prepare, str(hidden), *command]


@contextmanager
def agent(
    run: Watched,
    port: int | None = None,
    secret: Path | None = None,
    home: Path | None = None,
    before: Callable[[], object] = lambda: None,
) -> Iterator[subprocess.Popen[str]]:
    """An agent that joins a run; ended afterwards. With a `home` it keeps its files there, and shares none.

    Args:
        before: Called once its home is there.
    """
    host, own = address_of(run)
    command = [*AGENT, f"{host}:{port or own}"]
    environment = {**os.environ, SECRET_VARIABLE: str(secret or run.run.secret)}
    if home is not None:
        home.mkdir()
        environment |= {"XDG_DATA_HOME": str(home), SECRET_VARIABLE: str(copy(run.run.secret, home / "secret"))}
        command = without(run.run.path.parent, *command)
    before()
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


class Cable:
    """Forwards connections from a port of its own; while cut it forwards nothing, and closes nothing."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.is_cut = False
        self._ended = False
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._forward, daemon=True)
        self._thread.start()

    def _forward(self) -> None:
        while not self._ended:
            if self.is_cut:
                threading.Event().wait(0.01)
                continue
            for key, _ in self._selector.select(0.05):
                assert isinstance(key.fileobj, socket.socket)
                if key.fileobj is self._listener:
                    self._connect()
                elif key.fileobj in self._pairs:
                    self._pass_on(key.fileobj)

    def _connect(self) -> None:
        near, _ = self._listener.accept()
        try:
            far = socket.create_connection(self._target)
        except OSError:
            near.close()
            return
        self._pairs |= {near: far, far: near}
        for one in (near, far):
            self._selector.register(one, selectors.EVENT_READ)

    def _pass_on(self, source: socket.socket) -> None:
        try:
            data = source.recv(1 << 16)
            if data:
                self._pairs[source].sendall(data)
                return
        except OSError:
            pass
        self._unplug(source)

    def _unplug(self, one: socket.socket) -> None:
        for end in (one, self._pairs[one]):
            del self._pairs[end]
            self._selector.unregister(end)
            end.close()

    def close(self) -> None:
        """Closes both ends of all connections."""
        self._ended = True
        self._thread.join()
        for end in list(self._pairs):
            with suppress(OSError):
                end.close()
        self._listener.close()


@contextmanager
def cable(run: Watched) -> Iterator[Cable]:
    """A cable to a run's supervisor."""
    one = Cable(address_of(run))
    try:
        yield one
    finally:
        one.close()
