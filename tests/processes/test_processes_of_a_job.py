"""Which processes of a job report as which rank of which run: spawned ones, late ones, and children of ranks."""

from __future__ import annotations

import textwrap
from pathlib import Path

from tests.processes.harness import launched
from tests.processes.own_scripts import Start, curve, ends_well, the_run
from trainers.config.run_config import RunConfig
from trainers.contract import mailbox
from trainers.contract.events import LogLine, Metrics, RunEnded, StopRequested
from trainers.runtime.teardown import STOP_GRACE_S

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
        run.config["pids"] = [rank.pid for rank in ranks]
        for rank in ranks: rank.join()
"""


def test_a_process_that_reports_and_the_ranks_it_spawns_stop_together(start: Start, runs_dir: Path) -> None:
    process = start(SPAWNS.format(waits=False))
    watched = the_run(runs_dir)
    for rank in range(2):
        watched.wait(Metrics, lambda event, rank=rank: event.rank == rank)
    mailbox.send(watched.run.commands, "stop")
    end = watched.end()
    ends_well(process)
    assert end.status == "stopped"
    assert max(curve(watched, 0, "loss")) == max(curve(watched, 1, "loss"))
    assert end.time - watched.of(StopRequested)[0].time < STOP_GRACE_S / 2


def test_a_rank_that_has_finished_counts_by_how_often_it_asked(start: Start, runs_dir: Path) -> None:
    text = """
        import os, time, tuiapp
        run = tuiapp.init()
        for step in range(1, 4) if run.rank == 0 else range(1, 1_000_000):
            if run.should_stop(): break
            tuiapp.log({"loss": step}, step=1_000_000 * step)
            time.sleep(0.01)
    """
    ranks = [start(text, RANK=str(rank), WORLD_SIZE="2") for rank in range(2)]
    ends_well(ranks[0])
    watched = the_run(runs_dir)
    watched.wait(Metrics, lambda event: event.rank == 1)
    mailbox.send(watched.run.commands, "stop")
    end = watched.end()
    ends_well(ranks[1])
    assert end.time - watched.of(StopRequested)[0].time < STOP_GRACE_S / 2


def test_a_launched_rank_that_has_finished_is_not_waited_for(tmp_path: Path, runs_dir: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent("""
        import time, tuiapp
        with tuiapp.init() as run:
            run.should_stop()
        print("finished", flush=True)
        time.sleep(600)
    """)
    )
    config = RunConfig(backend="script", script=str(script), platform="cpu", devices=1)
    with launched(config, runs_dir) as run:
        run.wait(LogLine, lambda line: line.text == "finished")
        mailbox.send(run.run.commands, "stop")
        end = run.wait(RunEnded)
        assert end.status == "stopped"
        assert end.time - run.of(StopRequested)[0].time < STOP_GRACE_S / 2
