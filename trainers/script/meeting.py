"""Where the nodes of a job that somebody else has started meet, so that all its ranks are one run.

They meet in the runs directory, if they share one. The node that creates the job's file there begins the run, whose
supervisor opens the channel that agents use, and then writes its name into the file. Each other node starts an agent
that joins it, to which the ranks there report. A file whose run is over, or that nobody has written for too long, is
followed by another with the next number: so a job of the same name, or one whose first node died, meets anew. Nothing
here relies on locks, which on many shared file systems each machine keeps to itself.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

from tuiapp.trainers.config.files import open_regular, read_end, read_limited
from tuiapp.trainers.contract.rundir import RUN_ID, RunDir
from tuiapp.trainers.launch.processes import start_agent
from tuiapp.trainers.script.jobs import JobRank, Recorder, check_not_stopped, digest, listens, notes

MEET_S = 30.0
"""How long a node tries to join the first; as long the others wait for a first one that has not written its name."""
FIRST_S = 1.0
"""How long the others leave it to node 0 to be the first, so that the run's nodes have the numbers of the job's."""
POLL_S = 0.05
LOOK_S = 0.5
MAX_NOTE_BYTES = 1024
MAX_SAID_BYTES = 4000


class ApartError(Exception):
    """This node cannot join the others, for the reason that it tells."""


class _Note(NamedTuple):
    """A file of the job."""

    number: int
    path: Path

    @property
    def following(self) -> _Note:
        """The next, there or not."""
        return _Note(self.number + 1, self.path.with_name(f"{self.path.name.rpartition('-')[0]}-{self.number + 1}"))

    def read(self) -> tuple[str, str]:
        """The run's id and its first node; "" twice until they are written, or if nobody will any more."""
        try:
            run, here = read_limited(self.path, MAX_NOTE_BYTES).removesuffix("\n").split("\n")
        except (FileNotFoundError, ValueError):
            return "", ""
        return (run, here) if RUN_ID.fullmatch(run) else ("", "")

    def create(self) -> int | None:
        """Returns a descriptor to write it; None if another node has created it."""
        try:
            return open_regular(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return None


_known: dict[str, str] = {}
"""A job's first node → why this one cannot join it: a process that begins many runs waits once."""


def begin_at_meeting(
    runs_dir: Path, place: JobRank, begin_for_all: Callable[[], RunDir], begin_for_node: Callable[[], RunDir]
) -> Recorder:
    """Begins the recorder of this node's ranks: of all the job's, or joined to that, or else of these alone.

    Raises OSError, StoppedError, and what `begin_…` raise.
    """
    if not place.meets:
        return Recorder(begin_for_node())
    try:
        return _meet(runs_dir, place, begin_for_all)
    except ApartError as error:
        return Recorder(begin_for_node(), apart=str(error))


def _meet(runs_dir: Path, place: JobRank, begin: Callable[[], RunDir]) -> Recorder:
    stem, here = digest(place.meets), f"{socket.gethostname()} {place.node}"
    directory, began = notes(runs_dir), monotonic()
    note, since = _newest(directory, stem), began
    while True:
        name, first = note.read()
        run = RunDir(runs_dir / name)
        if not name:
            free = monotonic() - since > (MEET_S if note.number else FIRST_S if place.node else 0.0)
        elif not (free := not run.is_live()):
            if first == here and _is_here(run):
                # Its ranks were started again, or its processes do not know that they are of one node.
                return Recorder(run)
            if listener := _join(run, place, first, began + MEET_S, note):
                return Recorder(run, listener)
        else:
            check_not_stopped(run)
        if free and (file := note.following.create()) is not None:
            return _open(note.following, file, here, begin)
        sleep(POLL_S)
        if (newest := _newest(directory, stem)) != note:
            note, since = newest, monotonic()


def _is_here(run: RunDir) -> bool:
    """Whether a run's supervisor is on this machine, and not on another of its name."""
    with suppress(OSError):
        return listens(run.address.read_text())
    return False


def _newest(directory: Path, stem: str) -> _Note:
    numbers = [path.name.rpartition("-")[2] for path in directory.glob(f"{stem}-*")]
    number = max((int(one) for one in numbers if one.isdecimal()), default=0)
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


def _join(run: RunDir, place: JobRank, first: str, deadline: float, note: _Note) -> str:
    """Starts the agent of this node; returns the name of the socket to which its ranks report.

    Returns "" once the run is over, or another node, which knows that, has begun the next.
    """
    host = first.partition(" ")[0]
    if known := _known.get(first):
        raise ApartError(known)
    listener = f"tuiapp-{os.urandom(16).hex()}"
    log = run.path / f"agent-{socket.gethostname()}-{os.getpid()}.log"
    agent, looked = start_agent(run, place.node, place.rank, listener, log), monotonic()
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
