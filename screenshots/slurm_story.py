"""Pictures of a run's whole way through Slurm, from a real one with two nodes: `python -m screenshots.slurm_story`.

It is submitted while another job has the nodes, runs, saves a checkpoint, is preempted by a job of a partition with
precedence, waits, continues by itself, and completes. Needs root, Debian's slurmctld, slurmd, slurm-client and munge,
and what `screenshots.make` needs; takes some minutes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from pathlib import Path

from screenshots.make import HERE, PATIENCE_S, TUIAPP, Camera
from tests.processes.cluster import jobs, slurm, start_now
from tests.processes.harness import watching
from tests.pty.terminal import Terminal
from tests.waiting import wait_until
from trainers.contract.events import Checkpoint, Queued, RunEnded, RunStarted
from tuiapp.library.find import find_run

KEYS = ("platform=cpu", "devices=4", "nodes=2", "network=lo", "requeue=true", "epochs=20")
WHOLE = ("--nodes=2", "--exclusive", "--output=/dev/null")


def main() -> None:
    """Makes them all."""
    parser = argparse.ArgumentParser(description="Makes pictures of a run's way through Slurm.")
    parser.add_argument("--into", metavar="DIR", type=Path, default=HERE, help="where to")
    into = parser.parse_args().into.resolve()
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home, slurm() as cluster:
        os.environ.update(cluster)
        os.environ.update(HOME=home, XDG_CONFIG_HOME=f"{home}/config", TUIAPP_RUNS_DIR=f"{home}/runs", LANG="C.UTF-8")
        _story(Camera(into), Path(home) / "runs", cluster)


def _story(camera: Camera, runs_dir: Path, cluster: dict[str, str]) -> None:
    blocker = _submit(*WHOLE, "--wrap", "sleep 600")
    settings = [word for key in KEYS for word in ("--set", key)]
    launch = [*TUIAPP, "run", "quickstart", "--slurm=--exclusive --time=1:00:00", *settings]
    with Terminal(launch, columns=120, lines=40) as headless:
        headless.wait("is queued", PATIENCE_S)
        (job,) = set(jobs(cluster)) - {blocker}
        with (
            watching(find_run("latest", runs_dir)) as run,
            Terminal([*TUIAPP, "attach"], columns=120, lines=40) as terminal,
        ):
            terminal.wait("Resources", PATIENCE_S)
            camera.take(terminal, "slurm-1-queued")
            subprocess.run(["scancel", blocker], check=True)
            run.wait(Checkpoint, lambda saved: saved.step >= 3 * run.started.steps_per_epoch, PATIENCE_S)
            terminal.wait(r"epoch +[4-9]/", PATIENCE_S)
            camera.take(terminal, "slurm-2-running")
            urgent = _submit("--partition=urgent", *WHOLE, "--wrap", "sleep 20")
            first = run.end(PATIENCE_S)
            run.wait(Queued, lambda queued: queued.seq > first.seq, PATIENCE_S)
            terminal.wait("QUEUED", PATIENCE_S)
            camera.take(terminal, "slurm-3-preempted")
            wait_until(lambda: urgent not in jobs(cluster), PATIENCE_S)
            start_now(job, cluster)
            run.wait(RunStarted, lambda started: started.attempt == 2, PATIENCE_S)
            terminal.wait(r"RUNNING[\s\S]*epoch +1[3-9]/", PATIENCE_S)
            camera.take(terminal, "slurm-4-continued")
            run.wait(RunEnded, lambda end: end.status == "completed", PATIENCE_S)
            terminal.wait("COMPLETED", PATIENCE_S)
            camera.take(terminal, "slurm-5-completed")
        headless.wait("COMPLETED", PATIENCE_S)
        camera.take(headless, "slurm-6-terminal")


def _submit(*words: str) -> str:
    return subprocess.run(["sbatch", "--parsable", *words], capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
