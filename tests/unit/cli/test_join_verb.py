"""`tuiapp join` in the terminal of another machine: what it asks, what it says, how it ends."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pexpect
import pytest

from tests.kit.command_line import Command
from tests.kit.harness import MLP, launched
from tests.kit.nodes import address_of
from tests.kit.terminal import end

JOIN = ["-P", "-m", "tuiapp", "join"]


@contextmanager
def joining(*arguments: str) -> Iterator[pexpect.spawn[str]]:
    process = pexpect.spawn(sys.executable, [*JOIN, *arguments], timeout=60, encoding="utf-8")
    try:
        yield process
    finally:
        end(process)


@pytest.mark.parametrize("address", ["10.0.0.1", ":29500", "10.0.0.1:99999", "10.0.0.1:http"])
def test_what_is_no_address_is_refused(tuiapp: Command, address: str) -> None:
    done = tuiapp("join", address)
    assert (done.code, done.out) == (2, "")
    assert f"{address!r} is not an address; type HOST:PORT" in done.err


def test_a_node_that_cannot_be_is_refused(tuiapp: Command) -> None:
    done = tuiapp("join", "127.0.0.1:9", "--node", "-1")
    assert (done.code, done.out) == (2, "")
    assert "-1 is no node; the others are counted from 1" in done.err


def test_a_secret_file_that_is_not_there_is_refused(tuiapp: Command) -> None:
    done = tuiapp("join", "127.0.0.1:9", "--secret-file", "/no/such")
    assert (done.code, done.out) == (2, "")
    assert "There is no file '/no/such'" in done.err


@pytest.mark.nightly
def test_it_says_that_an_address_does_not_answer_and_ends_by_a_signal(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("abc\n")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        with joining(address, "--secret-file", str(secret)) as process:
            process.expect_exact(f"{address} does not answer yet: timed out; trying again for 120 s")
            process.kill(signal.SIGTERM)
            process.expect_exact("ended by a signal")
            process.expect(pexpect.EOF)


def test_the_secret_is_asked_for_and_not_shown(runs_dir: Path) -> None:
    config = msgspec.structs.replace(MLP, launcher="join", nodes=2, network="lo")
    with launched(config, runs_dir) as run:
        address = ":".join(map(str, address_of(run)))
        secret = run.run.secret.read_text().strip()
        with joining(address) as process:
            process.expect_exact("secret of the run: ")
            process.sendline(secret)
            process.expect_exact(f"node 1: joined {address}")
            assert secret not in (process.before or "")
