"""`python -m tuiapp.trainers.run.bandwidth`: measures all-reduces over devices, for `tuiapp devices --bandwidth`.

What is asked is the first line of its input, what is found are lines of its output. It starts the ranks of the backend
that is asked for, in the environment that they would train in. Once its input ends, because whoever asked is gone, or
a rank fails, or none says anything for a while, all of them are ended at once.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from time import monotonic
from typing import IO

import msgspec

from tuiapp.trainers.config import bootstrap
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.machine import Link
from tuiapp.trainers.contract.bandwidth import Answer, Asked, Failed, Links
from tuiapp.trainers.contract.lines import encode_line
from tuiapp.trainers.contract.orphans import kill_tagged
from tuiapp.trainers.run import wire
from tuiapp.trainers.run.rank_end import describe_exit
from tuiapp.trainers.run.rank_environment import LOOPBACK, Rendezvous, bind_rendezvous, rank_environment

SILENT_S = 120.0
"""How long nothing may be heard: a framework is imported, and GPUs get to know each other, in less."""
LINKS_S = 10.0
"""A driver that takes longer is not asked what the links can do."""
LAST_BYTES = 4000


def main() -> None:
    """Measures, and tells of it."""
    asked = msgspec.json.decode(sys.stdin.buffer.readline(), type=Asked)
    try:
        if asked.plan.config.platform == "cuda":
            tell(Links(gpus=read_links(asked.plan.config.device_ids)))
        if failed := follow(asked):
            tell(failed)
    finally:
        kill_tagged(asked.token)


def tell(answer: Answer) -> None:
    """Tells whoever asked."""
    sys.stdout.buffer.write(encode_line(answer))
    sys.stdout.buffer.flush()


def read_links(uuids: Sequence[str]) -> list[Link]:
    """What the links of these GPUs can do; none where the driver does not say."""
    with contextlib.suppress(subprocess.SubprocessError, msgspec.DecodeError):
        done = subprocess.run(
            bootstrap.module("tuiapp.trainers.telemetry.links"), capture_output=True, timeout=LINKS_S, check=True
        )
        links = msgspec.json.decode(done.stdout, type=list[Link])
        return [link for link in links if link.uuid in uuids]
    return []


def follow(asked: Asked) -> Failed | None:
    """Starts the ranks and passes on what the first says; returns why that ended early, if it did."""
    plan = asked.plan
    with ExitStack() as stack:
        listener = stack.enter_context(bind_rendezvous(LOOPBACK))
        selector = stack.enter_context(selectors.DefaultSelector())
        rendezvous = Rendezvous(listener.getsockname()[1], gpus=plan.config.device_ids)
        environment = rank_environment(plan, asked.token, rendezvous)
        module = f"tuiapp.trainers.frameworks.{BACKENDS[plan.config.backend].engine}.bandwidth"
        command = bootstrap.command(plan.python or sys.executable, module, str(asked.most_bytes), str(asked.seconds))
        # In memory, not in pipes: nobody reads before the end.
        said = [stack.enter_context(open(os.memfd_create("said"), "w+b", buffering=0)) for _ in range(plan.processes)]
        ranks = []
        for rank in range(plan.processes):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank), wire.STORE_FD: str(listener.fileno())}
            ranks.append(
                subprocess.Popen(
                    command,
                    env={**environment, **own},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL if rank else subprocess.PIPE,
                    stderr=said[rank],
                    pass_fds=[] if rank else [listener.fileno()],
                    start_new_session=True,
                )
            )
        selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
        for rank, process in enumerate(ranks):
            selector.register(os.pidfd_open(process.pid), selectors.EVENT_READ, rank)
        assert ranks[0].stdout is not None
        selector.register(ranks[0].stdout, selectors.EVENT_READ, "lines")
        heard, running = monotonic(), len(ranks)
        while running:
            for key, _ in selector.select(1.0):
                if key.data == "lines":
                    heard = monotonic()
                    if line := os.read(key.fd, 1 << 16):
                        sys.stdout.buffer.write(line)
                        sys.stdout.buffer.flush()
                    else:
                        selector.unregister(key.fileobj)
                elif key.data is None:
                    # Whoever asked is gone.
                    return None
                elif ranks[key.data].wait():
                    return Failed(why=why_ended(key.data, ranks[key.data].returncode, said[key.data]))
                else:
                    selector.unregister(key.fileobj)
                    running -= 1
            if monotonic() - heard > SILENT_S:
                return Failed(why=f"no rank has said anything for {SILENT_S:.0f} s: the exchange hangs")
        # What the first said last may still be in the pipe.
        for line in ranks[0].stdout:
            sys.stdout.buffer.write(line)
    return None


def why_ended(rank: int, returncode: int, said: IO[bytes]) -> str:
    """How a rank ended that did not end well, with the last line that it wrote."""
    said.seek(max(0, os.fstat(said.fileno()).st_size - LAST_BYTES))
    lines = said.read().decode(errors="replace").strip().splitlines()
    code, name = describe_exit(returncode)
    how = f"was killed by {name}" if name else f"exited with code {code}"
    return f"rank {rank} {how}: {lines[-1]}" if lines else f"rank {rank} {how}"


if __name__ == "__main__":
    main()
