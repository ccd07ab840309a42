"""Real runs get what runs of the fake backend get: a place, a fault, a gate, and that nothing of them is left."""

from __future__ import annotations

from tests.kit.leftovers import mark as mark
from tests.processes.conftest import _leaves_no_process as _leaves_no_process
from tests.processes.conftest import fault as fault
from tests.processes.conftest import gate as gate
from tests.processes.conftest import runs_dir as runs_dir
from tests.processes.conftest import start as start
