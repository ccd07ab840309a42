"""Where the nodes of a job meet: who is the first, and what becomes of those that find nobody."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier

import pytest
from msgspec.structs import replace

from tests.kit import histories as h
from tuiapp.trainers.contract.journal import JournalWriter
from tuiapp.trainers.contract.rundir import RunDir, make_run_dir
from tuiapp.trainers.script import jobs
from tuiapp.trainers.script.jobs import JobRank, Recorder, StoppedError, begin_at_meeting, find_job_rank


def place(node: int = 0, job: str = "slurm 18.0 1") -> JobRank:
    return JobRank(
        rank=2 * node,
        world_size=4,
        job=f"{job}, node {node}",
        part=(node, 2),
        local_size=2,
        first_of_part=True,
        inherited=False,
        meets=job,
        node=node,
    )


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Callable[[], RunDir]]:
    """Makes live runs, whose recorders are in this process."""
    with ExitStack() as held:

        def begin() -> RunDir:
            run = make_run_dir(tmp_path, "script", "train")
            held.callback(os.close, run.take_lock())
            return run

        yield begin


@pytest.fixture(autouse=True)
def joined(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs that agents have joined, in the place of agents."""
    runs: list[str] = []

    def join(run: RunDir, *_: object) -> str:
        runs.append(run.run_id)
        return "listener"

    monkeypatch.setattr(jobs, "_join", join)
    return runs


def alone() -> RunDir:
    raise AssertionError("a run of this node alone")


def note(tmp_path: Path, number: int) -> Path:
    (found,) = (tmp_path / ".jobs").glob(f"*-{number}")
    return found


def test_of_many_at_once_one_begins_and_all_others_join(
    tmp_path: Path, live: Callable[[], RunDir], joined: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "FIRST_S", 0.0)
    together = Barrier(8)

    def meet(node: int) -> Recorder:
        together.wait()
        return begin_at_meeting(tmp_path, place(node), live, alone)

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(meet, range(8)))
    assert len({recorder.run for recorder in found}) == 1
    assert sorted(recorder.listener for recorder in found) == ["", *["listener"] * 7]
    assert joined == [found[0].run.run_id] * 7


def test_a_job_that_nothing_names_is_recorded_on_each_node(tmp_path: Path, live: Callable[[], RunDir]) -> None:
    recorder = begin_at_meeting(tmp_path, place(job=""), alone, live)
    assert recorder.run.is_live()
    assert not (tmp_path / ".jobs").exists()


def test_after_a_run_that_is_over_the_next_job_of_its_name_meets_anew(
    tmp_path: Path, live: Callable[[], RunDir], joined: list[str]
) -> None:
    over = begin_at_meeting(tmp_path, place(), lambda: make_run_dir(tmp_path, "script", "train"), alone).run
    first = begin_at_meeting(tmp_path, place(1), live, alone)
    second = begin_at_meeting(tmp_path, place(), live, alone)
    assert first.run == second.run != over
    assert (first.listener, second.listener) == ("", "listener")
    assert joined == [first.run.run_id]


def test_a_first_node_that_dies_before_it_has_a_run_is_followed(
    tmp_path: Path, live: Callable[[], RunDir], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt):
        begin_at_meeting(tmp_path, place(), _interrupted, alone)
    assert list((tmp_path / ".jobs").iterdir()) == []
    first = begin_at_meeting(tmp_path, place(), live, alone)
    # Killed: nobody removes its note.
    note(tmp_path, 1).write_bytes(b"")
    monkeypatch.setattr(jobs, "MEET_S", 0.3)
    second = begin_at_meeting(tmp_path, place(1), live, alone)
    assert second.run != first.run
    assert note(tmp_path, 2).read_text() == f"{second.run.run_id}\n{socket.gethostname()} 1\n"


def test_a_node_that_begins_after_its_run_was_stopped_ends_with_it(tmp_path: Path) -> None:
    def stopped() -> RunDir:
        run = make_run_dir(tmp_path, "script", "train")
        JournalWriter(run.journal).append([h.started(), replace(h.ended("stopped", 1.0), time=time.time())])
        return run

    begin_at_meeting(tmp_path, place(), stopped, alone)
    with pytest.raises(StoppedError):
        begin_at_meeting(tmp_path, place(1), alone, alone)


def test_a_node_that_cannot_join_says_why_and_records_itself(
    tmp_path: Path, live: Callable[[], RunDir], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = begin_at_meeting(tmp_path, place(), live, alone)

    def cannot(*_: object) -> str:
        raise jobs.ApartError("node-a was not reached within 30 s")

    monkeypatch.setattr(jobs, "_join", cannot)
    second = begin_at_meeting(tmp_path, place(1), alone, live)
    assert second.run != first.run
    assert (second.listener, second.apart) == ("", "node-a was not reached within 30 s")


def test_the_others_leave_it_to_node_0_for_a_moment(
    tmp_path: Path, live: Callable[[], RunDir], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "FIRST_S", 60.0)
    with ThreadPoolExecutor(1) as thread:
        second = thread.submit(begin_at_meeting, tmp_path, place(1), alone, alone)
        first = begin_at_meeting(tmp_path, place(), live, alone)
        assert second.result(30) == Recorder(first.run, "listener")


def _interrupted() -> RunDir:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("variables", "meets"),
    [
        ("RANK=1 WORLD_SIZE=4 LOCAL_WORLD_SIZE=4 TORCHELASTIC_RUN_ID=none MASTER_ADDR=a MASTER_PORT=1", ""),
        (
            "RANK=1 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 GROUP_RANK=0 GROUP_WORLD_SIZE=2 TORCHELASTIC_RUN_ID=none "
            "MASTER_ADDR=a MASTER_PORT=1 TORCHELASTIC_RESTART_COUNT=3",
            "TORCHELASTIC_RUN_ID=none MASTER_ADDR=a MASTER_PORT=1 2",
        ),
        (
            "SLURM_PROCID=1 SLURM_NTASKS=4 SLURM_NODEID=0 SLURM_STEP_NUM_NODES=2 SLURM_JOB_ID=7 SLURM_STEP_ID=0 "
            "SLURM_RESTART_COUNT=1",
            "SLURM_CLUSTER_NAME= SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_RESTART_COUNT=1 2",
        ),
        ("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=4 PMIX_NAMESPACE=9", ""),
        (
            "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=9",
            "PMIX_NAMESPACE=9 2",
        ),
        ("PMI_RANK=1 PMI_SIZE=4 MPI_LOCALNRANKS=2", ""),
        ("PMI_RANK=1 PMI_SIZE=4 MPI_LOCALNRANKS=2 MASTER_ADDR=a MASTER_PORT=1", "MASTER_ADDR=a MASTER_PORT=1 2"),
    ],
    ids=["one machine", "torchrun", "Slurm", "one machine by mpirun", "Open MPI", "MPICH", "MPICH with a port"],
)
def test_what_names_a_job_on_all_its_nodes(monkeypatch: pytest.MonkeyPatch, variables: str, meets: str) -> None:
    for name in list(os.environ):
        if name.startswith(("SLURM", "MASTER", "TUIAPP_RUN_DIR")):
            monkeypatch.delenv(name)
    for variable in variables.split():
        monkeypatch.setenv(*variable.split("="))
    assert find_job_rank(begun=2).meets == meets
