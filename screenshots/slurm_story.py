"""Makes pictures of a run in a real Slurm: `python -m screenshots.slurm_story`.

The form launches it. It waits in the queue, trains on two nodes, is preempted, waits again, continues and completes.
`--into DIR` writes them elsewhere. Needs what `screenshots.make` needs, root, and Debian's slurmctld, slurmd,
slurm-client and munge.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import tempfile
from pathlib import Path

import msgspec

from screenshots import picture
from screenshots.make import HERE, PATIENCE_S, TUIAPP, Camera
from tests.kit.cluster import jobs, slurm, start_now
from tests.kit.harness import watching
from tests.kit.terminal import READY, Terminal
from tests.kit.waiting import wait_until
from tuiapp.library.find import find_run
from tuiapp.library.presets import load_config, save_preset

HOSTS = ("gpu-a", "gpu-b")
RUN = (
    *("run", "quickstart", "--set", "platform=cpu", "--set", "devices=4", "--set", "nodes=2"),
    *("--set", "epochs=12", "--set", "requeue=true", "--slurm", "--exclusive --time=1:00:00"),
)


def main() -> None:
    """Makes them all."""
    parser = argparse.ArgumentParser(description="Makes pictures of a run in a real Slurm.")
    parser.add_argument("--into", metavar="DIR", type=Path, default=HERE, help="where to")
    into = parser.parse_args().into.resolve()
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home, slurm(HOSTS) as cluster:
        os.environ.update(cluster)
        places = {"XDG_CONFIG_HOME": "config", "TUIAPP_RUNS_DIR": "runs"}
        os.environ.update({"HOME": home, "LANG": "C.UTF-8", **{name: f"{home}/{at}" for name, at in places.items()}})
        _form(Camera(into))
        _story(Camera(into), Path(home) / "runs", cluster)


def _form(camera: Camera) -> None:
    settings = msgspec.structs.replace(
        load_config("quickstart"),
        platform="cpu",
        devices=4,
        launcher="slurm",
        nodes=2,
        slurm="--exclusive --time=1:00:00",
        requeue=True,
        epochs=12,
    )
    save_preset("cluster", settings, "two nodes, by Slurm")
    with Terminal(TUIAPP, columns=120, lines=40) as terminal:
        terminal.wait(READY)
        terminal.wait(r"cluster\b")
        terminal.wait_for_silence()
        terminal.click(r"cluster\b")
        terminal.wait(r"tuiapp run cluster\b")
        camera.take(terminal, "slurm-form")


def _story(camera: Camera, runs_dir: Path, cluster: dict[str, str]) -> None:
    other = _submit("debug", 600)
    typed = shlex.join(["tuiapp", *RUN])
    # The loopback interface is the only one that these nodes share.
    command = shlex.join([*TUIAPP, *RUN, "--set", "network=lo"])
    shell = ["sh", "-c", f"printf '$ %s\\n' {shlex.quote(typed)}; exec {command}"]
    with Terminal(shell, columns=120, lines=24) as headless:
        headless.wait("is queued · Resources", PATIENCE_S)
        with (
            watching(find_run("latest", runs_dir)) as run,
            Terminal([*TUIAPP, "attach"], columns=120, lines=40) as terminal,
        ):
            terminal.wait("QUEUED")
            terminal.wait_for_silence(1, 3)
            camera.take(terminal, "slurm-queued")
            subprocess.run(["scancel", other], check=True)
            terminal.wait(r"epoch +[4-5]/", PATIENCE_S)
            camera.take(terminal, "slurm-running")
            urgent = _submit("urgent", 45)
            terminal.wait("QUEUED", PATIENCE_S)
            terminal.wait("BeginTime", PATIENCE_S)
            camera.take(terminal, "slurm-preempted")
            headless.wait("BeginTime", PATIENCE_S)
            _take(headless, camera.into / "slurm-followed.png")
            wait_until(lambda: urgent not in jobs(cluster), PATIENCE_S)
            start_now(jobs(cluster)[0], cluster)
            terminal.wait(r"epoch +[7-9]/", PATIENCE_S)
            camera.take(terminal, "slurm-continued")

            run.wait_gone(PATIENCE_S)
            terminal.wait("COMPLETED", PATIENCE_S)
            camera.take(terminal, "slurm-completed")


def _submit(partition: str, seconds: int) -> str:
    """Submits a job that takes all nodes."""
    command = ["sbatch", "--parsable", "-p", partition, "--nodes=2", "--exclusive", "--output=/dev/null", "-t", "30"]
    done = subprocess.run([*command, "--wrap", f"sleep {seconds}"], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _take(terminal: Terminal, path: Path) -> None:
    terminal.wait_for_silence(0.6, 1)
    picture.save(picture.cells_of(terminal.screen), path)
    print(path, flush=True)


if __name__ == "__main__":
    main()
