"""Which processes of a job report as which rank of which run: spawned ones, late ones, and children of ranks."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests.kit.harness import wait_dead
from tests.kit.own_scripts import DEADLINE_S, Start, curve, ends_well, the_run
from tuiapp.library.find import list_runs
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import Facts, Metrics, StopRequested
from tuiapp.trainers.run.teardown import STOP_GRACE_S

pytestmark = pytest.mark.nightly

SPAWNS = """
    import multiprocessing, pathlib, time, tuiapp
    def train(rank):
        while {waits} and not pathlib.Path("go").exists(): time.sleep(0.01)
        run = tuiapp.init(rank=rank, world_size=2)
        step = 0
        while not run.should_stop():
            step += 1
            tuiapp.log({{"loss": rank}}, step=step)
            time.sleep(0.001)
    if __name__ == "__main__":
        run = tuiapp.init(config={{"lr": 0.5}})
        ranks = [multiprocessing.get_context("spawn").Process(target=train, args=(rank,)) for rank in range(2)]
        for rank in ranks: rank.start()
        run.config["pids"] = " ".join(str(rank.pid) for rank in ranks)
        for rank in ranks: rank.join()
"""


def test_ranks_that_begin_after_their_run_was_stopped_end_with_it(start: Start, runs_dir: Path, tmp_path: Path) -> None:
    process = start(SPAWNS.format(waits=True))
    watched = the_run(runs_dir)
    facts = watched.wait(Facts, lambda facts: "pids" in facts.config)
    ranks = [psutil.Process(int(pid)) for pid in str(facts.config["pids"]).split()]
    sidecars.send_command(watched.run.commands, "stop")
    assert watched.end().status == "stopped"
    process.wait(DEADLINE_S)
    (tmp_path / "go").touch()
    wait_dead(ranks)
    assert list_runs(runs_dir) == [watched.run]


def test_a_process_that_reports_and_the_ranks_it_spawns_stop_together(start: Start, runs_dir: Path) -> None:
    process = start(SPAWNS.format(waits=False))
    watched = the_run(runs_dir)
    watched.wait(Metrics, lambda event: event.rank == 0)
    watched.wait(Metrics, lambda event: event.rank == 1)
    sidecars.send_command(watched.run.commands, "stop")
    end = watched.end()
    ends_well(process)
    assert end.status == "stopped"
    assert max(curve(watched, 0, "loss")) == max(curve(watched, 1, "loss"))
    assert end.time - watched.of(StopRequested)[0].time < STOP_GRACE_S / 2


def test_what_a_rank_starts_is_no_rank_and_reports_beside_it(start: Start, runs_dir: Path) -> None:
    process = start(
        """
        import os, subprocess, sys, tuiapp
        if len(sys.argv) > 1:
            tuiapp.log({"child": 1}, step=9)
            sys.exit()
        tuiapp.log({"loss": 1}, step=1)
        subprocess.run([sys.executable, __file__, "evaluation"], check=True)
        if not (child := os.fork()):
            tuiapp.init()
            tuiapp.log({"child": 1}, step=9)
            os._exit(0)
        os.waitpid(child, 0)
        tuiapp.log({"loss": 2}, step=2)
        """,
        RANK="0", WORLD_SIZE="2",
    )  # fmt: skip
    error = ends_well(process)
    watched = the_run(runs_dir)
    assert watched.end().status == "completed"
    assert (curve(watched, 0, "child"), curve(watched, 0, "loss")) == ({9: 1.0}, {1: 1.0, 2: 2.0})
    assert error.count("rank 0 is reported by the process that started this one") == 1
    assert "values are not recorded" not in error


def test_a_rank_that_ends_before_anybody_reads_it_is_recorded(start: Start, runs_dir: Path, tmp_path: Path) -> None:
    text = "import os, time, tuiapp\ntuiapp.log({'loss': 1})\n"
    first = start(text + "while not os.path.exists('go'): time.sleep(0.01)", RANK="0", WORLD_SIZE="2")
    watched = the_run(runs_dir)
    watched.wait(Metrics)
    supervisor = psutil.Process(watched.started.pid)
    supervisor.suspend()
    ends_well(start(text, RANK="1", WORLD_SIZE="2"))
    supervisor.resume()
    watched.wait(Metrics, lambda event: event.rank == 1)
    (tmp_path / "go").touch()
    ends_well(first)
    assert watched.end().status == "completed"
