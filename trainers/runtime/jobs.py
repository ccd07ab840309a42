"""Which rank of which job this process is, and which run records that job.

A job is what one launcher started: torchrun, a Slurm step, mpirun, or a script that spawns its ranks. All its ranks on
one machine report to the same run; two jobs never share one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from trainers.config.files import make_private, open_regular
from trainers.contract.process_identity import identity
from trainers.contract.rundir import RunDir

JOIN_TIMEOUT_S = 60.0
STALE_S = 86_400.0

_ENVIRONMENTS = (
    ("RANK", "WORLD_SIZE"),  # torchrun, accelerate, DeepSpeed
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
"""Variables that hold a process's rank and the number of ranks, the most specific launcher first."""


class Place(NamedTuple):
    rank: int
    world_size: int
    job: str
    """Names the job on this machine."""


def find_place(rank: int | None = None, world_size: int | None = None, begun: int = 1) -> Place:
    """Returns this process's place; arguments take precedence over frameworks, and those over the environment.

    `begun`: how many runs the process has begun: a job whose ranks finish a run and begin another has two.
    """
    given = (rank or 0, world_size or 1) if rank is not None or world_size is not None else None
    torch = None if given else _from_torch()
    place = given or torch or _from_jax() or _from_environment() or (0, 1)
    # The only rank was started by nobody who starts others: two such scripts of one shell are two jobs.
    job = job_of_children(os.getppid() if place[1] > 1 else os.getpid())
    if torch and place[1] > 1:
        job = _job_of_port() or job
    return Place(*place, f"{job} {begun}")


def job_of_children(pid: int) -> str:
    """Names the job of the ranks that process `pid` starts; a process that trains alone is in its own."""
    if "SLURM_STEP_ID" in os.environ and _number("SLURM_NTASKS"):
        # Each task may have a parent of its own.
        launcher = f"slurm {os.environ.get('SLURM_JOB_ID')}.{os.environ['SLURM_STEP_ID']}"
    elif "TORCHELASTIC_RUN_ID" in os.environ:
        # The port is taken as long as the job runs.
        names = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")
        launcher = " ".join(["torchelastic", *(os.environ.get(name, "") for name in names)])
    else:
        launcher = identity(pid)
    return f"{socket.gethostname()} {launcher}"


def _job_of_port() -> str:
    """Names the job of a torch.distributed process group by its port: ranks may start one another, as Lightning's do.

    Returns "" if another launcher names it, or the group was made without these variables.
    """
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    launched = {"SLURM_STEP_ID", "TORCHELASTIC_RUN_ID"} & os.environ.keys()
    return "" if launched or not address or not port else f"{socket.gethostname()} torch {address} {port}"


def find_run(runs_dir: Path, job: str, make: Callable[[], RunDir]) -> RunDir:
    """Returns the live run that records a job; the first rank to ask makes it. Raises OSError, TimeoutError."""
    with _locked(runs_dir, job) as file:
        run = RunDir(runs_dir / os.pread(file, 4096, 0).decode("utf-8", "replace").strip())
        # Without its address it is ending, and takes no more ranks.
        if run.path != runs_dir and run.is_live() and run.address.exists():
            return run
        run = make()
        os.ftruncate(file, 0)
        os.pwrite(file, run.run_id.encode(), 0)
        return run


@contextmanager
def _locked(runs_dir: Path, job: str) -> Iterator[int]:
    directory = runs_dir / ".jobs"
    make_private(runs_dir)
    make_private(directory)
    _remove_stale(directory)
    path = directory / hashlib.sha256(job.encode()).hexdigest()[:32]
    file = open_regular(path, os.O_RDWR | os.O_CREAT)
    deadline = time.monotonic() + JOIN_TIMEOUT_S
    try:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"another rank of this job has held {path} for {JOIN_TIMEOUT_S:.0f} s") from None
                time.sleep(0.02)
        yield file
    finally:
        os.close(file)


def _remove_stale(directory: Path) -> None:
    with suppress(OSError):
        for path in directory.iterdir():
            # Joined as long as the run lives, which may be longer; its later ranks then make a run of their own.
            if time.time() - path.stat().st_mtime > STALE_S:
                path.unlink()


def _number(name: str) -> int | None:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _from_environment() -> tuple[int, int] | None:
    for rank_name, size_name in _ENVIRONMENTS:
        rank, size = _number(rank_name), _number(size_name)
        if rank is not None and size is not None and (size > 1 or rank_name == "RANK"):
            return rank, size
    return None


def _from_torch() -> tuple[int, int] | None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _from_jax() -> tuple[int, int] | None:
    jax = sys.modules.get("jax")
    # Asking jax for its process index would initialize its devices, which the script may still have to choose.
    if jax is None or not jax.distributed.is_initialized():
        return None
    return jax.process_index(), jax.process_count()
