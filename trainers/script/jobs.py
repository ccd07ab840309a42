"""Which rank of which job this process is, and which run records that job.

A job is what one launcher started: torchrun, a Slurm step, mpirun, or a script that spawns its ranks. All its ranks on
one machine report to the same run, and so do those of several machines if their nodes meet (`begin_at_meeting`): in the
runs directory that they share, the first writes its name into a note, and the others join it. Two jobs never share a
run.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

from tuiapp.trainers.config.files import make_private, open_regular, read_end, read_limited
from tuiapp.trainers.contract.lock import take
from tuiapp.trainers.contract.process_identity import identity, is_alive, start_time
from tuiapp.trainers.contract.rundir import RUN_ID, RunDir
from tuiapp.trainers.launch.processes import start_agent
from tuiapp.trainers.run.disk_full_safe_stdio import say
from tuiapp.trainers.run.wire import RUN_DIR
from tuiapp.trainers.script.continuing import END_S
from tuiapp.trainers.state.status import known

JOIN_TIMEOUT_S = 90.0
"""The rank that begins the run may first wait for another node in vain."""
CONNECT_S = 1.0
STALE_S = 86_400.0
MAX_NOTE_BYTES = 1 << 20
"""Most bytes of a job's file: the run's id, and a line for each process that reports, rank and identity."""

_ENVIRONMENTS = (
    ("RANK", "WORLD_SIZE"),  # torchrun, accelerate, DeepSpeed
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
"""Variables that hold a process's rank and the number of ranks, the most specific launcher first."""

REPORTS = "TUIAPP_REPORTS"
"""Environment variable of a process that reports, and so of those that it starts: its identity and `JobRank`."""
REPORTS_TO = "TUIAPP_REPORTS_TO"
"""Environment variable beside `REPORTS`: the process's rank, the socket, and its run's directory."""

MEET_S = 30.0
"""How long a node tries to join the first; as long the others wait for a first one that has not written its name."""
FIRST_S = 1.0
"""How long the others leave it to node 0 to be the first, so that the run's nodes have the numbers of the job's."""
POLL_S = 0.05
LOOK_S = 0.5
MAX_MEETING_BYTES = 1024
MAX_SAID_BYTES = 4000

_known: dict[str, str] = {}
"""A job's first node → why this one cannot join it: a process that begins many runs waits once."""


class JobRank(NamedTuple):
    rank: int
    world_size: int
    job: str
    """Names the job on this machine."""
    part: tuple[int, int] | None
    """Number of this node, from 0, and of how many, if the job has ranks on several."""
    local_size: int
    """The ranks on this node, as far as the launcher says; else all."""
    first_of_part: bool
    """Whether it is the first rank of its node, of several nodes."""
    inherited: bool
    """Whether the process that started this one reports as this rank, and this one is not known to be it."""
    meets: str
    """Names the job on all its nodes; "" if all its ranks are on one, or nothing names it there."""
    node: int
    """The number of this one among them; of a launcher that does not say it, as if each had equally many ranks."""


class Recorder(NamedTuple):
    """The run that records this node's ranks of a job, and the socket to which they report."""

    run: RunDir
    listener: str = ""
    """The listener's address; "" for the one in the run's file `address`."""
    apart: str = ""
    """Why the ranks of the job's other nodes are runs of their own, where this process has just found that out."""


class StoppedError(Exception):
    """The job's run was stopped after this process began: it is to end, and begins no other run."""


def find_job_rank(rank: int | None = None, world_size: int | None = None, begun: int = 1) -> JobRank:
    """Returns this process's rank and job; arguments go before frameworks, and those before the environment.

    `begun`: how many runs the process has begun: a job whose ranks finish a run and begin another has two.
    """
    arguments = (rank or 0, world_size or 1) if rank is not None or world_size is not None else None
    stated = arguments or _from_torch() or _from_jax()
    rank_and_size = stated or _from_environment() or (0, 1)
    several = rank_and_size[1] > 1
    starter, starters_job, same = _starter(rank_and_size)
    # The only rank was started by nobody who starts others: two such scripts of one shell are two jobs.
    job = f"{(several and _job_of_port()) or job_of_children(os.getppid() if several else os.getpid())} {begun}"
    if launched := os.environ.get(RUN_DIR):
        job = f"{launched} {begun}"
    part = _part() if several else None
    if several and starter.partition(":")[0] == str(_parent()):
        job = starters_job
    elif part is not None:
        # Two may have one name, in containers.
        job = f"{job}, node {part[0]}"
    local_size = (_local_size(part) if part else None) or rank_and_size[1]
    local = _local_size() or rank_and_size[1]
    elsewhere = part is not None or (several and local < rank_and_size[1])
    node = part[0] if part else rank_and_size[0] // local
    shared = (launched or _job_of_nodes()) if elsewhere else ""
    meets = f"{shared} {begun}" if shared else ""
    first_of_part = part is not None and 0 in (_number("LOCAL_RANK"), _number("SLURM_LOCALID"))
    inherited = not stated and same and (several or bool(launched) or job == starters_job)
    return JobRank(*rank_and_size, job, part, local_size, first_of_part, inherited, meets, node)


def set_reports(job_rank: JobRank | None, directory: Path = Path(), listener: str = "") -> None:
    """Lets the processes that this one starts know what it reports as, and where; None: it reports no more."""
    for name in (REPORTS, REPORTS_TO):
        os.environ.pop(name, None)
    if job_rank is not None:
        os.environ[REPORTS] = f"{identity(os.getpid())} {job_rank.rank} {job_rank.world_size} {job_rank.job}"
        os.environ[REPORTS_TO] = f"{job_rank.rank} {listener} {directory}"


def starters_run() -> tuple[RunDir, int, str]:
    """Returns the run to which the process that has started this one reports, as which rank, and at which socket."""
    rank, listener, directory = os.environ[REPORTS_TO].split(" ", 2)
    return RunDir(Path(directory)), int(rank), listener


def reporting_starter() -> int:
    """Returns the pid of the process that reports as this rank and has started this one, directly or not; else 0."""
    starter, _, same = _starter(_from_torch() or _from_jax() or _from_environment() or (0, 1))
    return int(starter.partition(":")[0]) if same and is_alive(starter) else 0


def find_run(runs_dir: Path, job_rank: JobRank, begin: Callable[[JobRank], Recorder]) -> Recorder:
    """Returns the live run that records a job; on each of its nodes the first rank to ask begins it.

    Where another process that lives reports as this rank already, the ranks are those of another job of the same name,
    as of two scripts that were given one port: theirs is a run of its own.

    Raises OSError, TimeoutError, and StoppedError.
    """
    own_line, number, job, meets = f"{job_rank.rank} {identity(os.getpid())}", 1, job_rank.job, job_rank.meets
    while True:
        if number > 1:
            further = f", number {number}"
            job_rank = job_rank._replace(job=job + further, meets=meets and meets + further)
        with _locked(runs_dir, job_rank.job) as file:
            first, *reporting = os.pread(file, MAX_NOTE_BYTES, 0).decode("utf-8", "replace").splitlines() or [""]
            name, _, listener = first.partition(" ")
            run = RunDir(runs_dir / name)
            if run.path != runs_dir:
                # Without its address it is ending, and takes no more ranks.
                if run.is_live() and (listens(listener) if listener else os.path.exists(run.address)):
                    if other := _other_process(job_rank.rank, reporting):
                        text = f"process {other} reports as rank {job_rank.rank} of {name}: this is another run"
                        say(text)
                        number += 1
                        continue
                    os.pwrite(file, "\n".join([first, *reporting, own_line]).encode(), 0)
                    return Recorder(run, listener)
                check_not_stopped(run)
            recorder = begin(job_rank)
            recorded_by = f"{recorder.run.run_id} {recorder.listener}".rstrip()
            os.ftruncate(file, 0)
            os.pwrite(file, f"{recorded_by}\n{own_line}".encode(), 0)
            return recorder


def begin_at_meeting(
    runs_dir: Path, job_rank: JobRank, begin_for_all: Callable[[], RunDir], begin_for_node: Callable[[], RunDir]
) -> Recorder:
    """Begins the recorder of this node's ranks: of all the job's, or joined to that, or else of these alone.

    Raises OSError, StoppedError, and what `begin_…` raise.
    """
    if not job_rank.meets:
        return Recorder(begin_for_node())
    try:
        return _meet(runs_dir, job_rank, begin_for_all)
    except ApartError as error:
        return Recorder(begin_for_node(), apart=str(error))


def check_not_stopped(run: RunDir) -> None:
    """Raises StoppedError if a run that is ending was stopped after this process began."""
    run.wait_until_over(END_S)
    end = known(run).status.end
    began = start_time(os.getpid()) / os.sysconf("SC_CLK_TCK")
    began_ago = time.clock_gettime(time.CLOCK_BOOTTIME) - began
    # A later job may have the same name: that of a shell, or of a port.
    if end is not None and end.status == "stopped" and time.time() - end.time < began_ago:
        raise StoppedError(f"{run.run_id}, the run of the job of this process, was stopped")


def listens(name: str) -> bool:
    """Tells whether a process has a socket of this name on this machine."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, suppress(OSError):
        probe.settimeout(CONNECT_S)
        probe.connect(f"\0{name}")
        return True
    return False


def notes(runs_dir: Path) -> Path:
    """Returns the directory in which a job's processes find one another; raises OSError if it cannot be made."""
    directory = runs_dir / ".jobs"
    make_private(runs_dir)
    make_private(directory)
    return directory


def digest(job: str) -> str:
    """Returns a file's name for a job."""
    return hashlib.sha256(job.encode()).hexdigest()[:32]


def suffix(part: tuple[int, int] | None) -> str:
    """Returns what tells a run's name from those of an array's other tasks, and of the job's other nodes, if any.

    `part` is that of the run.
    """
    task = os.environ.get("SLURM_ARRAY_TASK_ID", "")
    return (f"-{task}" if task else "") + (f"-node{part[0]}" if part else "")


def _starter(rank_and_size: tuple[int, int]) -> tuple[str, str, bool]:
    """Returns the process that reports and has started this one, its job, and whether it reports as this one's rank."""
    starter, *reported, job = os.environ.get(REPORTS, "-1 0 0 ").split(" ", 3)
    same = [int(number) for number in reported] == [*rank_and_size]
    return starter, job, same and starter.partition(":")[0] != str(os.getpid())


def _parent() -> int:
    """Returns the pid of the process that started this one, even if it is gone or had a server fork it."""
    module = sys.modules.get("multiprocessing.process")
    parent = module.parent_process() if module is not None else None
    return parent.pid if parent is not None else os.getppid()


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


def _job_of_nodes() -> str:
    """Names the job of this process as on its other nodes; "" if none of the launchers that are known does."""
    names = []
    if "SLURM_STEP_ID" in os.environ:
        # A job that Slurm has put back into its queue keeps its number.
        names += ["SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"]
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # Not TORCHELASTIC_RESTART_COUNT: each node counts the failures of its own ranks.
        names += ["TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"]
    if not names and "PMIX_NAMESPACE" in os.environ:
        names = ["PMIX_NAMESPACE"]
    if not names and {"MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
        names = ["MASTER_ADDR", "MASTER_PORT"]
    return " ".join(f"{name}={os.environ.get(name, '')}" for name in names)


def _job_of_port() -> str:
    """Names the job of a torch.distributed process group by its port: ranks may start one another, as Lightning's do.

    Returns "" if another launcher names it, or the group was made without these variables.
    """
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    launched = {"SLURM_STEP_ID", "TORCHELASTIC_RUN_ID"} & os.environ.keys()
    return "" if launched or not address or not port else f"{socket.gethostname()} torch {address} {port}"


def _other_process(rank: int, reporting: list[str]) -> int:
    """Returns the process that reports as a rank, and neither is this one nor has started it; 0 if none does."""
    for line in reporting:
        number, _, known_as = line.partition(" ")
        if number == str(rank) and is_alive(known_as):
            pid = int(known_as.partition(":")[0])
            if pid not in (os.getpid(), _parent()):
                return pid
    return 0


@contextmanager
def _locked(runs_dir: Path, job: str) -> Iterator[int]:
    path = notes(runs_dir) / digest(job)
    with suppress(OSError):
        for note in path.parent.iterdir():
            # Joined as long as the run lives, which may be longer; its later ranks then make a run of their own.
            if time.time() - note.stat().st_mtime > STALE_S:
                note.unlink()
    try:
        file = take(path, JOIN_TIMEOUT_S)
    except BlockingIOError:
        raise TimeoutError(f"another rank of this job has held {path} for {JOIN_TIMEOUT_S:.0f} s") from None
    try:
        yield file
    finally:
        os.close(file)


def _number(name: str) -> int | None:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _part() -> tuple[int, int] | None:
    for node_name, nodes_name in (
        ("GROUP_RANK", "GROUP_WORLD_SIZE"),
        ("SLURM_NODEID", "SLURM_STEP_NUM_NODES"),
        ("SLURM_NODEID", "SLURM_NNODES"),
    ):
        node, nodes = _number(node_name), _number(nodes_name)
        if node is not None and nodes is not None:
            return (node, nodes) if 0 <= node < nodes > 1 else None
    return None


def _local_size(part: tuple[int, int] | None = None) -> int | None:
    for name in ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"):
        if size := _number(name):
            return size
    if part is None:
        return None
    counts: list[int] = []
    # "2(x3),1": two tasks on each of three nodes, one on the fourth.
    for tasks, nodes in re.findall(r"(\d{1,6})(?:\(x(\d{1,6})\))?", os.environ.get("SLURM_STEP_TASKS_PER_NODE", "")):
        counts += [int(tasks)] * int(nodes or 1)
    return counts[part[0]] if part[0] < len(counts) else None


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


class ApartError(Exception):
    """This node cannot join the others, for the reason that it tells."""


class _Note(NamedTuple):
    """A file of the job."""

    number: int
    path: Path

    @property
    def following(self) -> _Note:
        """Returns the note after this one, whether or not it is there."""
        return _Note(self.number + 1, self.path.with_name(f"{self.path.name.rpartition('-')[0]}-{self.number + 1}"))

    def read(self) -> tuple[str, str]:
        """Returns the run's id and its first node; "" twice until they are written, or if nobody will any more."""
        try:
            run, here = read_limited(self.path, MAX_MEETING_BYTES).removesuffix("\n").split("\n")
        except (FileNotFoundError, ValueError):
            return "", ""
        return (run, here) if RUN_ID.fullmatch(run) else ("", "")

    def create(self) -> int | None:
        """Returns a descriptor to write it; None if another node has created it."""
        try:
            return open_regular(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return None


def _meet(runs_dir: Path, job_rank: JobRank, begin: Callable[[], RunDir]) -> Recorder:
    stem, here = digest(job_rank.meets), f"{socket.gethostname()} {job_rank.node}"
    directory, began = notes(runs_dir), monotonic()
    note, since = _newest(directory, stem), began
    while True:
        name, first = note.read()
        run = RunDir(runs_dir / name)
        if not name:
            free = monotonic() - since > (MEET_S if note.number else FIRST_S if job_rank.node else 0.0)
        elif not (free := not run.is_live()):
            if first == here and _is_here(run):
                # Its ranks were started again, or its processes do not know that they are of one node.
                return Recorder(run)
            if listener := _join(run, job_rank, first, began + MEET_S, note):
                return Recorder(run, listener)
        else:
            check_not_stopped(run)
        if free and (file := note.following.create()) is not None:
            return _open(note.following, file, here, begin)
        sleep(POLL_S)
        if (newest := _newest(directory, stem)) != note:
            note, since = newest, monotonic()


def _is_here(run: RunDir) -> bool:
    """Tells whether a run's supervisor is on this machine, and not on another of its name."""
    with suppress(OSError):
        return listens(run.address.read_text())
    return False


def _newest(directory: Path, stem: str) -> _Note:
    numbers = [path.name.rpartition("-")[2] for path in directory.glob(f"{stem}-*")]
    number = max((int(text) for text in numbers if text.isdecimal()), default=0)
    return _Note(number, directory / f"{stem}-{number}")


def _open(note: _Note, file: int, here: str, begin: Callable[[], RunDir]) -> Recorder:
    """Begins the run, and writes its name into the note that this node has created."""
    try:
        run = begin()
        os.write(file, f"{run.run_id}\n{here}\n".encode())
    except BaseException:
        note.path.unlink(missing_ok=True)
        raise
    finally:
        os.close(file)
    return Recorder(run)


def _join(run: RunDir, job_rank: JobRank, first: str, deadline: float, note: _Note) -> str:
    """Starts the agent of this node; returns the name of the socket to which its ranks report.

    Returns "" once the run is over, or another node, which knows that, has begun the next.
    """
    host = first.partition(" ")[0]
    if reason := _known.get(first):
        raise ApartError(reason)
    listener = f"tuiapp-{os.urandom(16).hex()}"
    log = run.path / f"agent-{socket.gethostname()}-{os.getpid()}.log"
    agent, looked = start_agent(run, job_rank.node, job_rank.rank, listener, log), monotonic()
    joined = False
    try:
        while not (joined := listens(listener)):
            now = monotonic()
            ended = agent.poll() is not None
            if ended or now - looked > LOOK_S:
                looked = now
                if os.path.exists(note.following.path) or not run.is_live():
                    return ""
            if ended:
                raise ApartError(_last_words(log) or f"its agent ended with exit code {agent.returncode}")
            if now > deadline:
                _known[first] = _last_words(log) or f"{host} was not reached within {MEET_S:.0f} s"
                raise ApartError(_known[first])
            sleep(POLL_S)
    finally:
        if not joined:
            agent.kill()
    return listener


def _last_words(log: Path) -> str:
    lines = read_end(log, 0, MAX_SAID_BYTES).split("\n")
    said = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return said.removeprefix("tuiapp: ")
