"""How a rank of the user's own script is started: its command, torchrun's environment, its working directory.

Nothing of ours runs in its process: it is what `python -u train.py ARGUMENTS` is in a shell.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuiapp.trainers.config.division import node_of
from tuiapp.trainers.config.files import read_end
from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.config.script import command, variables
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.run import wire
from tuiapp.trainers.run.place import Place
from tuiapp.trainers.run.tracebacks import ScriptError, find_traceback

RESUME = "TUIAPP_RESUME"
"""Environment variable: "1" in every attempt after the first; the script loads its own checkpoint then."""

ELASTIC_ERROR_FILE = "torchelastic_error.json"
"""Written by a script whose main function has torch's `@record`."""

MAX_TRACEBACK_BYTES = 64 * 1024
MAX_ERROR_BYTES = 256 * 1024

CLEANUP_S, CLEANUP_LINES = 900.0, 10
"""How long a script takes at most to end after its exception, and what it says meanwhile; NCCL waits ten minutes."""


@dataclass(frozen=True, slots=True)
class ScriptStart:
    """What all ranks of a script have in common."""

    command: list[str]
    working_directory: str
    world_size: int | None
    """None for a single process that owns all devices: it gets no rank, as when started by hand."""
    variables: Mapping[str, str]
    """Those of the configuration."""
    run_id: str
    ranks: tuple[int, ...] = (1,)
    """Of each node."""

    def environment(self, rank: int, local_rank: int, directory: Path, shared: Mapping[str, str]) -> dict[str, str]:
        """The whole environment of a rank, whose files are in `directory`; `shared` is that of all its node's ranks.

        The variables are those of torchrun:
        https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
        """
        if self.world_size is None:
            return {**shared, **self.variables}
        size, node = str(self.world_size), node_of(rank, self.ranks)
        elastic = {
            "RANK": str(rank),
            "LOCAL_RANK": str(local_rank),
            "WORLD_SIZE": size,
            "LOCAL_WORLD_SIZE": str(self.ranks[node]),
            "GROUP_RANK": str(node),
            "GROUP_WORLD_SIZE": str(len(self.ranks)),
            "ROLE_NAME": "default",
            "ROLE_RANK": str(rank),
            "ROLE_WORLD_SIZE": size,
            "TORCHELASTIC_RUN_ID": self.run_id,
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_USE_AGENT_STORE": "False",
            "TORCHELASTIC_ERROR_FILE": str(directory / ELASTIC_ERROR_FILE),
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        }
        return {**shared, **elastic, **self.variables}


def script_start(run: RunDir, plan: Plan) -> ScriptStart:
    """What a plan's script is started with."""
    config = plan.config
    return ScriptStart(
        command=command(config, plan.python or sys.executable),
        working_directory=config.working_directory,
        world_size=plan.processes if config.processes == "per-device" or config.nodes > 1 else None,
        variables=variables(config),
        run_id=run.run_id,
        ranks=tuple(len(plan.ranks_of(node)) for node in range(config.nodes)),
    )


def script_environment(run: RunDir, listener: str, plan: Plan, place: Place, attempt: int) -> dict[str, str]:
    """What a script's ranks get beside the devices and the run's token; the place's port is free for them.

    They report to the run by the socket `listener`.
    """
    each = plan.config.processes == "per-device" or plan.config.nodes > 1
    alone = plan.config.processes == "one" and plan.config.platform == "cpu"
    cores = len(os.sched_getaffinity(0))
    # None, if somebody else starts them.
    local = len(plan.ranks_of(place.node)) or 1
    devices = plan.devices_of(place.node)
    defaults = {
        # A crash in native code leaves the Python stacks in stderr.log.
        "PYTHONFAULTHANDLER": "1",
        # The processes that it starts write at once, too.
        "PYTHONUNBUFFERED": "1",
        **(place.interfaces() if each else {}),
        # More threads than cores make two ranks slower than one.
        **({"OMP_NUM_THREADS": str(max(1, cores // local))} if each else {}),
        # The CPU devices that JAX makes in a process that owns them all.
        **({"JAX_NUM_CPU_DEVICES": str(devices)} if alone and devices > 1 else {}),
    }
    return {
        **defaults,
        **os.environ,
        **({"MASTER_ADDR": place.address, "MASTER_PORT": str(place.port)} if each else {}),
        **({RESUME: "1"} if attempt > 1 else {}),
        wire.RUN_DIR: str(run.path),
        wire.LISTENER: listener,
    }


def read_failure(directory: Path, errors_from: int, output_from: int) -> ScriptError | None:
    """Finds the exception that ended a script: in torch's error file, at the end of its stderr, or of its stdout.

    The logs are read from these offsets on.
    """
    return (
        read_elastic_error(directory / ELASTIC_ERROR_FILE)
        or find_traceback(read_end(directory / "stderr.log", errors_from, MAX_TRACEBACK_BYTES))
        or _last_words(find_traceback(read_end(directory / "stdout.log", output_from, MAX_TRACEBACK_BYTES)))
    )


def _last_words(printed: ScriptError | None) -> ScriptError | None:
    """A script that prints on has caught its exception and gone on."""
    return printed if printed and printed.lines_after <= CLEANUP_LINES else None


def read_elastic_error(path: Path) -> ScriptError | None:
    """Reads the file that torch's `@record` writes; None if there is none, or it has another form."""
    try:
        # Unlike msgspec's, this decoder takes text that is no UTF-8, as an exception's may be.
        found: Any = json.loads(read_end(path, 0, MAX_ERROR_BYTES))
        message = found["message"]
        said, trace = message["message"], message["extraInfo"]["py_callstack"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return ScriptError(error=str(said), traceback=str(trace).strip()) if said else None
