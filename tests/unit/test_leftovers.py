"""What a test leaves behind is ended."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil

from tests.kit.leftovers import MARK, end_marked
from tests.kit.leftovers import mark as mark
from tests.kit.waiting import wait_until

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
