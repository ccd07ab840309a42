"""Ends what a test has started and left behind, as one that fails midway does: known by a mark in the environment."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest

from tests.kit.waiting import wait_until

MARK = "TUIAPP_TEST_MARK"


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What all processes carry that are started from now on; ended after the test, whatever session they are in."""
    value = secrets.token_hex(8)
    monkeypatch.setenv(MARK, value)
    yield value
    end_marked(value)


def end_marked(value: str, seconds: float = 60.0) -> None:
    """Ends all processes that carry a mark; fails if some are still there after so many seconds."""

    def none_left() -> bool:
        left = [process for process in psutil.process_iter() if _carries(process, value)]
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        return not left

    wait_until(none_left, seconds)


def _carries(process: psutil.Process, value: str) -> bool:
    try:
        return process.pid != os.getpid() and process.environ().get(MARK) == value
    except psutil.Error:
        return False
