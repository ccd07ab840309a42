"""What comparing the replicas takes of training: `python -m tests.bench.replicas [MODEL [BACKEND…]]`.

Every backend trains on two CPU devices, in the processes and the environment of a run, without evaluations. Each
comparison is timed from when all ranks have come to it: that the first waits for the last is no part of it. Given are
the median of all but the first, and its share of the time from one comparison to the next.
"""

from __future__ import annotations

import importlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any, cast

from tests.kit.recorder import Recorder, Shelf
from tuiapp.trainers.config.catalog import BACKENDS, backends_with
from tuiapp.trainers.config.plan import make_plan, read_plan, write_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.rank import loop
from tuiapp.trainers.rank.checkpoints import Checkpoints
from tuiapp.trainers.rank.loop import Compare
from tuiapp.trainers.rank.reporter import Reporter
from tuiapp.trainers.run import wire
from tuiapp.trainers.run.rank_environment import LOOPBACK, Rendezvous, bind_rendezvous, rank_environment

EPOCHS = {"mlp": 100, "net": 40, "convnet": 40, "resnet18": 12}


def main(model: str, backends: list[str]) -> None:
    """Prints a line a backend."""
    for backend in backends:
        config = RunConfig(
            backend=backend, model=model, platform="cpu", devices=2, epochs=EPOCHS[model], eval_every=0,
            checkpoint_every=0,
        )  # fmt: skip
        plan = make_plan(config)
        with tempfile.TemporaryDirectory() as directory, bind_rendezvous(LOOPBACK) as listener:
            write_plan(path := Path(directory) / "plan.json", plan)
            environment = rank_environment(plan, "benchmark", Rendezvous(listener.getsockname()[1]))
            ranks = []
            for rank in plan.ranks:
                own = {"RANK": str(rank), "LOCAL_RANK": str(rank), wire.STORE_FD: str(listener.fileno())}
                command = [sys.executable, "-m", "tests.bench.replicas", "--rank", str(rank), str(path)]
                ranks.append(subprocess.Popen(command, env={**environment, **own}, pass_fds=[listener.fileno()]))
            for process in ranks:
                process.wait()


class Deaf(Recorder):
    def metrics(self, step: int, values: Mapping[str, Any]) -> None:
        """Lets what ranks wait for each other go."""


def be_rank(rank: int, path: Path) -> None:
    """Trains as one rank, and prints what the first has measured."""
    plan = read_plan(path)
    comparisons: list[float] = []
    between: list[float] = []
    training = loop.training

    def timed(*arguments: Any, **more: Any) -> Iterator[Any]:
        since = perf_counter()
        for work in training(*arguments, **more):
            if not isinstance(work, Compare):
                yield work
                continue
            if (torch := sys.modules.get("torch")) and torch.distributed.is_initialized():
                torch.distributed.barrier()
            began = perf_counter()
            yield work
            comparisons.append(perf_counter() - began)
            between.append(began - since)
            since = perf_counter()

    loop.training = timed
    backend = importlib.import_module(BACKENDS[plan.config.backend].module)
    backend.train(plan, rank, cast(Reporter, Deaf()), cast(Checkpoints, Shelf()))
    if rank == 0:
        took, every = statistics.median(comparisons[1:]), statistics.median(between[1:])
        of = f"{1e3 * took:.2f} ms of {1e3 * every:,.0f} ms, {100 * took / every:.3f} %"
        print(f"{plan.config.backend}, {plan.config.model}: {of} ({len(comparisons)} comparisons)", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        be_rank(int(sys.argv[2]), Path(sys.argv[3]))
    else:
        here = [name for name in backends_with("check_replicas") if not BACKENDS[name].missing()]
        main(sys.argv[1] if sys.argv[1:] else "mlp", sys.argv[2:] or here)
