"""What the tests stand on: comparisons note their margin, and what a test leaves behind is ended."""

from __future__ import annotations

import os
import subprocess
import sys
from math import inf, nan

import psutil
import pytest
from msgspec.structs import replace

from tests.kit.close import UNIT, Margin, assert_close, in_training, margins, rounding
from tests.kit.leftovers import MARK, end_marked
from tests.kit.leftovers import mark as mark
from tests.kit.waiting import wait_until
from tuiapp.trainers.config.run_config import RunConfig

MLP = RunConfig(model="mlp", optimizer="sgd", max_steps=8)


def test_a_comparison_notes_its_margin() -> None:
    assert_close([1.0, 2.0], [1.0, 2.25], 1.0)
    assert_close(8.0, 10.0, 0.25, relative=True)
    assert_close([0.0], [0.0], 0.0)
    assert margins == [Margin(0.25, 0.25, 1.0), Margin(0.8, 2.0, 2.5), Margin(0.0, 0.0, 0.0)]


@pytest.mark.parametrize("found", [[1.0, 2.5], [1.0, nan], [inf, 2.0], [1.0]])
def test_what_is_too_far_off_fails(found: list[float]) -> None:
    with pytest.raises(AssertionError, match=r"weights"):
        assert_close(found, [1.0, 2.0], 0.25, name="weights")
    # What fails is meant to.
    margins.clear()


def test_tolerances_follow_from_the_arithmetic() -> None:
    assert rounding(100, size=2) == 4 * UNIT["float32"] * 10 * 2
    assert in_training(MLP) < in_training(MLP, parts=2) < in_training(replace(MLP, model="net"))
    assert in_training(MLP) < in_training(replace(MLP, optimizer="adam")) < in_training(MLP, dtype="float16")


PARENT = """
import subprocess, sys
code = "import time; time.sleep(600)"
child = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.DEVNULL, start_new_session=True)
print(child.pid, flush=True)
"""


def test_a_process_in_a_session_of_its_own_whose_parent_has_ended(mark: str) -> None:
    started = subprocess.run([sys.executable, "-S", "-c", PARENT], stdout=subprocess.PIPE, text=True, check=True)
    left = psutil.Process(int(started.stdout))
    assert left.is_running()
    # The system sets it up a moment after the start of the new program has ended the wait of the one that starts it.
    wait_until(lambda: left.environ().get(MARK) == mark)
    assert os.environ[MARK] == mark
    end_marked(mark)
    assert not left.is_running() or left.status() == psutil.STATUS_ZOMBIE
