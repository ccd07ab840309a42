"""How a rank of the user's own script is started: its command, torchrun's environment, its working directory.

Nothing of ours runs in its process: it is what `python -u train.py ARGUMENTS` is in a shell.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tuiapp.trainers.config.division import node_of
from tuiapp.trainers.config.files import read_end
from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.config.ports import ANY
from tuiapp.trainers.config.script import command, variables
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.run import wire
from tuiapp.trainers.run.place import Place, bind_free

RESUME = "TUIAPP_RESUME"
"""Environment variable: "1" in every attempt after the first; the script loads its own checkpoint then."""

ELASTIC_ERROR_FILE = "torchelastic_error.json"
"""Written by a script whose main function has torch's `@record`."""

MAX_TRACEBACK_BYTES = 64 * 1024
MAX_ERROR_BYTES = 256 * 1024

_PREFIX = re.compile(r"^\[rank\d+\]: ?", re.MULTILINE)
"""PyTorch puts it before each line of an exception's traceback once the process group exists."""

_HEADER = "Traceback (most recent call last):"
_CHAIN = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
_LAST = re.compile(r"^[A-Za-z_][\w.]*(?::|$)")


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


def reserve_port(address: str, ports: range = ANY) -> socket.socket:
    """Returns a socket that keeps a free port for a script's own rendezvous, as long as it is open; raises OSError.

    It is bound but does not listen: nobody else is given the port, and a server that sets SO_REUSEADDR, as PyTorch's
    and JAX's do, can listen on it.
    """
    return bind_free(address, ports)


class ScriptError(msgspec.Struct, frozen=True):
    """An exception that ended a script."""

    error: str
    """Its last line."""
    traceback: str


def read_failure(directory: Path, offset: int) -> ScriptError | None:
    """Finds the exception that ended a script: in torch's error file, or at the end of its stderr from `offset` on."""
    return read_elastic_error(directory / ELASTIC_ERROR_FILE) or find_traceback(
        read_end(directory / "stderr.log", offset, MAX_TRACEBACK_BYTES)
    )


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


def find_traceback(text: str) -> ScriptError | None:
    """The last traceback of a text, with those that it followed from; None if there is none."""
    lines = _PREFIX.sub("", text).splitlines()
    headers = [number for number, line in enumerate(lines) if line.rstrip().endswith(_HEADER)]
    if not headers:
        return _find_syntax_error(lines)
    indent = len(lines[headers[-1]]) - len(lines[headers[-1]].lstrip())
    end = headers[-1] + 1
    # Frames are indented; the exception's line is not.
    while end < len(lines) - 1 and lines[end][indent : indent + 1] in (" ", ""):
        end += 1
    if end >= len(lines) or not _LAST.match(lines[end][indent:]):
        return None
    start = headers.pop()
    while headers and any(line.strip() in _CHAIN for line in lines[max(0, start - 3) : start]):
        start = headers.pop()
    return ScriptError(error=lines[end].strip(), traceback="\n".join(lines[start : end + 1]))


def _find_syntax_error(lines: list[str]) -> ScriptError | None:
    """A SyntaxError of the script itself has no header."""
    ends = [number for number, line in enumerate(lines) if line.startswith(("SyntaxError", "IndentationError"))]
    if not ends:
        return None
    start = max((number for number, line in enumerate(lines[: ends[-1]]) if line.startswith('  File "')), default=None)
    if start is None:
        return None
    return ScriptError(error=lines[ends[-1]], traceback="\n".join(lines[start : ends[-1] + 1]))
