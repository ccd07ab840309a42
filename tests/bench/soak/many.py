"""A queue, a sweep and a search that go on while a soak's other runs do, and whose keepers are killed meanwhile."""

from __future__ import annotations

import contextlib
import os
import random
from collections import Counter
from pathlib import Path

from tests.bench.soak.checks import Problem
from tests.unit.experiments.conftest import Queue, script, wait_until
from tuiapp.trainers.config.run_config import to_toml_values
from tuiapp.trainers.contract.sidecars import About
from tuiapp.trainers.experiments.queue import enqueue_all, start_keeper
from tuiapp.trainers.experiments.study import Search, Study
from tuiapp.trainers.experiments.sweep import begin_grid, begin_search, keep_searches
from tuiapp.trainers.state.summary import summarise

QUEUED, SWEPT, TRIALS = 12, 8, 8
END_S = 600.0
TEXT = """
import os, sys, time, tuiapp
open(os.environ["SOAK_NOTES"], "a").write(os.environ["TUIAPP_RUN_DIR"].rpartition("/")[2] + chr(10))
for step in range(1, 31):
    tuiapp.log({"badness": (float((sys.argv + ["0.5"])[1]) - 0.3) ** 2}, step=step)
    time.sleep(0.05)
"""


class Many:
    def __init__(self, directory: Path, chance: random.Random) -> None:
        directory.mkdir()
        self._chance, self._notes, self._queue = chance, directory / "notes", Queue(directory / "runs")
        self._notes.touch()
        os.environ["SOAK_NOTES"] = str(self._notes)
        config = script(directory, TEXT)
        with_value = to_toml_values(config) | {"arguments": "{x}", "values": "x=0.5"}
        runs_dir = self._queue.runs_dir
        self._order = [run.run_id for run in enqueue_all([(config, About(name="queued"))] * QUEUED, runs_dir)]
        begin_grid(Study(name="swept", axes={"x": f"1..{SWEPT}"}, config=with_value), runs_dir)
        search = Search(trials=TRIALS, parallel=2, sampler="random", pruner="none")
        self._searched = begin_search(
            Study(name="searched", axes={"x": "0.0..1.0"}, config=with_value, search=search, metric="badness"), runs_dir
        )

    def disturb(self) -> None:
        """Kills the keeper, the search, both or none, and starts what is missing, as any view does."""
        for name in ("queue_keeper", "search"):
            if self._chance.random() < 0.5:
                self._queue.kill(name)
        start_keeper(self._queue.runs_dir)
        keep_searches(self._queue.runs_dir)

    def finish(self) -> list[Problem]:
        """Waits for the end of all; returns what is wrong."""
        with contextlib.suppress(AssertionError):
            wait_until(lambda: self._queue.is_over() and not self._searched.is_searched(), END_S)
        runs = self._queue.runs
        found = [f"{run.run_id}: {info.status}: {info.reason}" for run in runs if (info := summarise(run)).is_live]
        found += [f"{run.run_id}: {info.reason}" for run in runs if (info := summarise(run)).status == "failed"]
        ran = Counter(self._notes.read_text().split())
        found += [f"{run.run_id} ran {ran[run.run_id]} times" for run in runs if ran[run.run_id] != 1]
        if (count := len(runs)) != QUEUED + SWEPT + TRIALS:
            found.append(f"{count} runs instead of {QUEUED + SWEPT + TRIALS}")
        if [run_id for run_id in ran if run_id in self._order] != self._order:
            found.append("the queued runs did not start in their order")
        left = [*self._queue.processes()]
        self._queue.end()
        return [Problem("unexpected", text) for text in found] + [Problem("orphan", str(one)) for one in left]
