"""What real terminals do: the program gives them back, lives through their odd ways, and ends when they are gone."""

from __future__ import annotations

import os
import pty
import random
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.kit.terminal import READY, Terminal
from tests.kit.waiting import wait_until

TUIAPP = [sys.executable, "-P", "-m", "tuiapp"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    places = {name: str(tmp_path / name.lower()) for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "TUIAPP_RUNS_DIR")}
    return {**places, "HOME": str(tmp_path), "LANG": "C.UTF-8"}


def modes(terminal: Terminal) -> list[Any]:
    """The terminal's settings, as `stty -a` shows them."""
    return termios.tcgetattr(terminal.process.fileno())


def status(terminal: Terminal) -> str:
    return psutil.Process(terminal.process.pid).status()


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.nightly)])
def test_the_terminal_is_given_back(environment: dict[str, str], number: signal.Signals) -> None:
    with Terminal(TUIAPP, environment=environment) as terminal:
        before = modes(terminal)
        terminal.wait(READY)
        assert modes(terminal) != before
        began = time.monotonic()
        terminal.process.kill(number)
        assert terminal.wait_exit() == 128 + number
        print(f"\n{number.name}: ended after {time.monotonic() - began:.2f} s")
        assert terminal.restored()
        assert modes(terminal) == before


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_also_when_nobody_reads_it(environment: dict[str, str], number: signal.Signals) -> None:
    with Terminal(TUIAPP, environment=environment) as terminal:
        before = modes(terminal)
        terminal.wait(READY)
        terminal.wait_for_silence()
        # Each of them draws a field and the help below; nobody takes what is drawn.
        for size in range(60):
            terminal.process.setwinsize(40 - size % 2, 120)
            terminal.process.send("\t")
            time.sleep(0.02)
        began = time.monotonic()
        terminal.process.kill(number)
        wait_until(lambda: not terminal.process.isalive())
        print(f"\n{number.name}, nobody reading: ended after {time.monotonic() - began:.2f} s")
        assert terminal.wait_exit() == 128 + number
        assert terminal.restored()
        assert modes(terminal) == before


@pytest.mark.nightly
def test_a_terminal_that_goes_away_without_a_word(environment: dict[str, str]) -> None:
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (40, 120))
    # In a session of its own without a controlling terminal: nobody sends SIGHUP.
    process = subprocess.Popen(
        TUIAPP, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, env={**os.environ, **environment}
    )
    try:
        os.close(slave)
        seen = b""
        deadline = time.monotonic() + 60
        while b"quickstart" not in seen:
            assert time.monotonic() < deadline
            if select.select([master], [], [], 0.1)[0]:
                seen += os.read(master, 65536)
        began = time.monotonic()
        os.close(master)
        assert process.wait(60) == 128 + signal.SIGHUP
        print(f"\nterminal gone without SIGHUP: ended after {time.monotonic() - began:.2f} s")
    finally:
        process.kill()
        process.wait()


@pytest.mark.nightly
def test_suspended_and_taken_up_again(environment: dict[str, str]) -> None:
    with Terminal(TUIAPP, environment=environment) as terminal:
        before = modes(terminal)
        terminal.wait(READY)
        terminal.wait_for_silence()
        terminal.process.kill(signal.SIGTSTP)
        # It stops when all that it had to write was read.
        wait_until(lambda: terminal.text and status(terminal) == psutil.STATUS_STOPPED)
        while terminal._pump(0.2):
            continue
        assert terminal.restored()
        assert modes(terminal) == before
        terminal.process.kill(signal.SIGCONT)
        # What stood there before still does: it is what it writes that says that it has the terminal again.
        wait_until(lambda: terminal.text and not terminal.restored())
        wait_until(lambda: modes(terminal) != before)
        terminal.wait(READY)
        terminal.press("ctrl+q")
        assert terminal.wait_exit() == 0
        assert terminal.restored()
        assert modes(terminal) == before


@pytest.mark.nightly
def test_stopped_without_being_asked(environment: dict[str, str]) -> None:
    with Terminal(TUIAPP, environment=environment) as terminal:
        before = modes(terminal)
        terminal.wait(READY)
        terminal.wait_for_silence()
        for _ in range(2):
            terminal.process.kill(signal.SIGSTOP)
            wait_until(lambda: status(terminal) == psutil.STATUS_STOPPED)
            # What a shell does with the terminal of a job that stopped.
            termios.tcsetattr(terminal.process.fileno(), termios.TCSANOW, before)
            terminal.process.kill(signal.SIGCONT)
            wait_until(lambda: modes(terminal) != before)
            terminal.wait_for_silence(0.5)
        terminal.press("ctrl+q")
        assert terminal.wait_exit() == 0
        assert terminal.restored()
        assert modes(terminal) == before


@pytest.mark.by_hand
def test_a_storm_of_resizes(environment: dict[str, str]) -> None:
    draw = random.Random(18)
    with Terminal(TUIAPP, environment=environment) as terminal:
        terminal.wait(READY)
        terminal.wait_for_silence()
        before = terminal.text
        for _ in range(150):
            terminal.resize(draw.randrange(10, 220), draw.randrange(4, 70))
            terminal._pump(draw.choice([0, 0, 0.01]))
        terminal.resize(120, 40)

        def differing() -> list[int]:
            """Lines that are not as they were."""
            pairs = zip(terminal.text.splitlines(), before.splitlines(), strict=True)
            return [number for number, (now, was) in enumerate(pairs) if now != was]

        # What had the focus may have been hidden meanwhile, and its keys' hints with it; all else is as it was.
        wait_until(lambda: len(found := differing()) <= 1 and 39 not in found)
        terminal.press("ctrl+q")
        assert terminal.wait_exit() == 0
