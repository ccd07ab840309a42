"""Scripts that report by `tuiapp.log`, started by anybody: python, torchrun, spawn, two at once, killed, stopped."""

from __future__ import annotations

import os
import signal
import textwrap
from pathlib import Path

import psutil
import pytest

from tests.kit.harness import Watched, launched, resumed, wait_dead
from tests.kit.own_scripts import DEADLINE_S, TORCHRUN, Start, curve, ends_well, the_run
from tests.kit.variants import mostly_nightly
from tuiapp.library.exporters.tables import rows_of
from tuiapp.library.find import list_runs
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import (
    Checkpoint,
    Facts,
    HostSample,
    Metrics,
    RankFailed,
    RankStarted,
    StopRequested,
)
from tuiapp.trainers.contract.journal import JournalReader
from tuiapp.trainers.contract.sidecars import About, read_about
from tuiapp.trainers.state.curves import Curves
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.history import find_gaps
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.snapshot import load, read_run
from tuiapp.trainers.state.summary import summarise


def test_a_plain_script_is_a_run(start: Start, runs_dir: Path) -> None:
    error = ends_well(
        start("""
        import tuiapp
        with tuiapp.init(name="first", config={"lr": 0.1, "layers": [1, 2]}, total_steps=20) as run:
            for step in range(1, 21):
                tuiapp.log({"loss": 1 / step, "train/ppl": 2.0, "n": step, "nested": {"deep": True}}, step=step)
            run.evaluation({"accuracy": 0.5, "loss": 0.25})
            run.summary["best"] = 0.5
    """)
    )
    watched = the_run(runs_dir)
    end = watched.end()
    assert (end.status, end.summary.steps, end.summary.loss, end.summary.test_accuracy) == ("completed", 20, 0.05, 0.5)
    assert end.summary.epochs is None
    assert curve(watched, 0, "loss") == {step: 1 / step for step in range(1, 21)}
    assert curve(watched, 0, "n") == {step: step for step in range(1, 21)}
    assert curve(watched, 0, "nested/deep")[20] == 1.0
    assert curve(watched, 0, "test/loss") == {20: 0.25}
    facts = watched.of(Facts)
    assert [fact.config for fact in facts if fact.config] == [{"lr": 0.1, "layers": [1, 2]}]
    assert [(fact.name, fact.total_steps) for fact in facts if fact.name] == [("first", 20)]
    assert [fact.summary for fact in facts if fact.summary] == [{"best": 0.5}]
    assert error == f"tuiapp: to watch this run: tuiapp attach {watched.run.run_id}\n"
    watched.wait_gone()


def test_disabled_nothing_is_made(start: Start, runs_dir: Path) -> None:
    text = "import tuiapp\nrun = tuiapp.init(config={'a': 1})\ntuiapp.log({'loss': 1})\nassert run.config.a == 1\n"
    text += "assert not run.should_stop()\ntuiapp.finish()"
    assert ends_well(start(text, TUIAPP_MODE="disabled")) == ""
    assert not runs_dir.exists()


@pytest.mark.nightly
def test_ranks_that_a_script_spawns_are_one_run(start: Start, runs_dir: Path) -> None:
    ends_well(
        start("""
        import socket, torch.distributed as dist, torch.multiprocessing as mp, tuiapp
        def train(rank, port):
            dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
            tuiapp.init()
            tuiapp.log({"loss": rank}, step=1)
            dist.barrier()
            dist.destroy_process_group()
        if __name__ == "__main__":
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            mp.spawn(train, (port,), nprocs=2)
    """)
    )
    watched = the_run(runs_dir)
    assert watched.end().status == "completed"
    assert (curve(watched, 0, "loss"), curve(watched, 1, "loss")) == ({1: 0.0}, {1: 1.0})


def test_an_exception_is_named_with_its_traceback(start: Start, runs_dir: Path) -> None:
    process = start("import tuiapp\ntuiapp.log({'loss': 1}, step=7)\nraise ValueError('no such thing')")
    assert "no such thing" in process.communicate(timeout=DEADLINE_S)[1]
    watched = the_run(runs_dir)
    assert (watched.end().status, watched.end().reason) == (
        "failed", "rank 0 failed at step 7: ValueError: no such thing",
    )  # fmt: skip
    assert "train0.py" in watched.of(RankFailed)[0].traceback


STOPPED = """
    import torch.distributed as dist, tuiapp
    dist.init_process_group("gloo")
    run = tuiapp.init()
    step = 0
    while True:
        step += 1
        if run.should_checkpoint():
            run.checkpoint(__file__, step=step - 1)
        if run.should_stop():
            break
        dist.barrier()
        tuiapp.log({"loss": step, "rank": dist.get_rank()}, step=step)
    dist.destroy_process_group()
"""


@pytest.mark.nightly
def test_all_ranks_of_torchrun_are_one_run_and_a_stop_ends_them_before_the_same_step_after_a_checkpoint(
    start: Start, runs_dir: Path
) -> None:
    process = start(STOPPED, *TORCHRUN)
    watched = the_run(runs_dir)
    watched.wait(Metrics, lambda event: event.rank == 0 and event.last_step > 10)
    watched.wait(Metrics, lambda event: event.rank == 1)
    sidecars.send_command(watched.run.commands, "stop")
    end = watched.end()
    ends_well(process)
    assert end.status == "stopped", end
    last = max(curve(watched, 0, "loss"))
    assert max(curve(watched, 1, "loss")) == last
    assert watched.started.world_size == 2
    assert [set(curve(watched, rank, "rank").values()) for rank in (0, 1)] == [{0.0}, {1.0}]
    assert len({event.pid for event in watched.of(RankStarted)}) == 2
    # Both ranks report it.
    assert [checkpoint.step for checkpoint in watched.of(Checkpoint)] == [last]
    assert [request.agreed for request in watched.of(StopRequested)] == [True]


@pytest.mark.nightly
def test_a_script_may_save_after_ctrl_c(start: Start, runs_dir: Path) -> None:
    process = start("""
        import time, tuiapp
        try:
            with tuiapp.init() as run:
                run.log({"loss": 1})
                time.sleep(600)
        except KeyboardInterrupt:
            time.sleep(1)
            print("saved")
    """)
    watched = the_run(runs_dir)
    watched.wait(Metrics)
    process.send_signal(signal.SIGINT)
    assert watched.end().status == "stopped"
    assert process.communicate(timeout=DEADLINE_S)[0] == "saved\n"


@pytest.mark.nightly
def test_the_supervisor_killed_training_continues(start: Start, runs_dir: Path, tmp_path: Path) -> None:
    process = start(f"""
        import os, time, tuiapp
        tuiapp.log({{"loss": 1}})
        while not os.path.exists({str(tmp_path / "go")!r}): time.sleep(0.01)
        for _ in range(100): tuiapp.log({{"loss": 1}})
    """)
    watched = the_run(runs_dir)
    watched.wait(Metrics)
    # A process that it has just forked holds the connection for a moment longer: the sampler is the last.
    watched.wait(HostSample)
    supervisor = psutil.Process(watched.started.pid)
    supervisor.kill()
    wait_dead([supervisor])
    (tmp_path / "go").touch()
    error = ends_well(process)
    assert error.count("training continues, nothing more is reported") == 1
    watched.wait_gone()


def test_a_script_for_wandb_runs_with_another_import(start: Start, runs_dir: Path) -> None:
    error = ends_well(
        start("""
        import argparse, os
        import numpy as np, torch
        import tuiapp as wandb
        run = wandb.init(project="demo", entity="me", config={"epochs": 2}, tags=["a"])
        wandb.define_metric("loss", step_metric=wandb.define_metric("epoch"), summary="max")
        assert os.path.isdir(run.dir) and run.dir.startswith(str(run.directory))
        wandb.config.update({"opt": argparse.Namespace(lr=np.float64(0.25))}, allow_val_change=True)
        wandb.summary["f1"] = torch.tensor(0.5, requires_grad=True)
        wandb.watch(None, log="all")
        wandb.config.update({"lr": 0.5})
        for epoch in range(wandb.config.epochs):
            wandb.log({"epoch": epoch, "loss": wandb.config.lr / (epoch + 1)})
            wandb.log({"image": wandb.Image(np.zeros((2, 2)), caption="dark"), "text": f"of {epoch}"}, commit=False)
            wandb.log({"table": wandb.Table(), "none": np.zeros(3)}, commit=False)
        wandb.run.summary["best"] = 1
        wandb.summary.update({"last": 2})
        artifact = wandb.Artifact("model", type="model")
        artifact.add_file("model.pt")
        wandb.log_artifact(artifact)
        wandb.finish()
    """)
    )
    watched = the_run(runs_dir)
    assert watched.end().status == "completed"
    assert list(curve(watched, 0, "loss").values()) == [0.5, 0.25]
    assert error.count("Table is not supported") == error.count("none is not a number (ndarray)") == 1
    watched.wait_gone()
    files = [file for kept in read_run(watched.run).media.values() for file in kept.files]
    assert [(file.name, file.step, file.caption) for file in files] == [
        ("image", 2, "dark"),
        ("image", 3, "dark"),
        ("text", 2, ""),
        ("text", 3, ""),
    ]
    assert {file.file for file in files} == {path.name for path in watched.run.media.iterdir()}
    assert (watched.run.media / files[-1].file).read_text() == "of 1"
    assert (digest := load(watched.run)) is not None
    assert [file for kept in digest.state.media.values() for file in kept.files] == files
    facts = summarise(watched.run).facts
    assert facts.config == {"epochs": 2, "opt/lr": 0.25, "lr": 0.5}
    assert facts.step_metrics == {"loss": "epoch"}
    assert facts.summary == {"f1": 0.5, "best": 1, "last": 2, "loss": 0.5}


RESUMES = """
    import json, os, time, tuiapp
    tuiapp.init(name="again", total_steps=80)
    again = "TUIAPP_RESUME" in os.environ
    for step in range(41 if again else 1, 81):
        tuiapp.log({"loss": step + 1000 * again}, step=step)
        while step == 60 and not again:
            time.sleep(0.01)
"""


def test_a_script_that_resumes_from_its_own_checkpoint_keeps_the_curve_before_it(
    tmp_path: Path, runs_dir: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(RESUMES))
    wanted = [*range(1, 41), *range(1041, 1081)]
    with launched(RunConfig(backend="script", script=str(script), platform="cpu", devices=1), runs_dir) as run:
        run.wait(Metrics, lambda event: event.last_step == 60)
        os.kill(run.pid(0), signal.SIGKILL)
        assert run.end().status == "failed"
    with resumed(run.run) as again:
        assert again.end().status == "completed"
        assert again.started.resumed_from is None
        # The digest is written after the journal's end.
        again.wait_gone()
    whole, short, compared = RunState(), RunState(), Curves(by_rank=False)
    events = JournalReader(run.run.journal).read()
    for event in events:
        apply(whole, event)
    compared.fold(events)
    digest = load(run.run)
    assert digest is not None
    apply(short, digest.state)
    for state in (whole, short):
        assert state.curves[0, "loss"].means().tolist() == wanted
        assert (state.name, state.step, state.progress) == ("again", 80, 1.0)
    assert compared.first("loss").means().tolist() == wanted
    assert not find_gaps(run.run.journal).found
    rows = [row for row in rows_of(run.run, "metrics") if row["attempt"] == 2 or int(str(row["step"])) <= 40]
    assert [row["loss"] for row in rows] == wanted


def test_threads_report_at_once(start: Start, runs_dir: Path) -> None:
    ends_well(
        start("""
        import threading, tuiapp
        def work(number):
            for value in range(1000): tuiapp.log({f"loss{number}": value})
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
    """)
    )
    watched = the_run(runs_dir)
    assert watched.end().status == "completed"
    for number in range(4):
        assert curve(watched, 0, f"loss{number}")
    # Each report has a step of its own.
    assert watched.end().summary.steps == 4000


CHILDREN = {
    "fork": "multiprocessing.get_context('fork').Process(target=work).run_it()",
    "spawn": "multiprocessing.get_context('spawn').Process(target=work).run_it()",
    "pool": "multiprocessing.get_context('fork').Pool(1).apply(work)",
    "subprocess": "subprocess.run([sys.executable, __file__, 'child'], check=True)",
}


@pytest.mark.nightly
@pytest.mark.parametrize("child", CHILDREN)
def test_what_a_process_logs_that_was_started_by_one_that_reports(start: Start, runs_dir: Path, child: str) -> None:
    error = ends_well(
        start(f"""
        import multiprocessing, multiprocessing.process, subprocess, sys, tuiapp
        def run_it(process):
            process.start()
            process.join()
        multiprocessing.process.BaseProcess.run_it = run_it
        def work():
            for _ in range(2): tuiapp.log({{"child": 1}})
        if __name__ == "__main__":
            if len(sys.argv) > 1:
                sys.exit(work())
            tuiapp.log({{"loss": 1}})
            {CHILDREN[child]}
            tuiapp.log({{"loss": 2}})
    """)
    )
    watched = the_run(runs_dir)
    assert watched.end().status == "completed"
    assert (curve(watched, 0, "loss"), curve(watched, 0, "child")) == ({1: 1.0, 2: 2.0}, {1: 1.0, 2: 1.0})
    assert "not recorded" not in error
    assert len(list_runs(runs_dir)) == 1


GOES_ON = """
    import sys, tuiapp
    run = tuiapp.init(id="abc", resume="allow", config={"lr": 0.1})
    run.define_metric("loss", summary="min")
    for step in range(run.step + 1, run.step + 6):
        tuiapp.log({"loss": step}, step=step)
    sys.exit(run.step % 10)
"""


@pytest.mark.nightly
def test_a_run_is_gone_on_with_by_its_id(start: Start, runs_dir: Path) -> None:
    for code in (5, 0, 5):
        process = start(GOES_ON)
        process.communicate(timeout=DEADLINE_S)
        assert process.returncode == code
    watched = the_run(runs_dir)
    watched.wait_gone()
    info = summarise(watched.run)
    assert (info.status, info.summary.steps, info.facts.summary, info.name) == ("failed", 15, {"loss": 1.0}, "abc")
    rows = rows_of(watched.run, "metrics")
    assert [(row["attempt"], row["step"]) for row in rows if row["step"] in (5, 10, 15)] == [(1, 5), (2, 10), (3, 15)]


def test_the_present_run_is_added_to(start: Start, runs_dir: Path) -> None:
    ends_well(
        start("""
        import tuiapp
        tuiapp.init("mine", config={"lr": 0.1})
        tuiapp.current("other", config={"depth": 2}, total_steps=7)
    """)
    )
    watched = the_run(runs_dir)
    watched.end()
    facts = watched.of(Facts)
    assert [fact.config for fact in facts if fact.config] == [{"lr": 0.1}, {"depth": 2}]
    assert [fact.name for fact in facts if fact.name] == ["mine"]
    assert [fact.total_steps for fact in facts if fact.total_steps] == [7]


FOLDS = """
    import tuiapp
    for fold in range(3):
        run = tuiapp.init(name=f"fold {fold}", config={"fold": fold})
        for step in range(1, 6):
            run.log({"loss": 10 * fold + step}, step=step)
        if FINISHES:
            tuiapp.finish()
"""


@pytest.mark.nightly
@pytest.mark.parametrize("finishes", ["True", "False"])
@pytest.mark.parametrize("by", ["python", "tuiapp run"])
def test_each_init_begins_a_run(start: Start, runs_dir: Path, tmp_path: Path, by: str, finishes: str) -> None:
    text = FOLDS.replace("FINISHES", finishes)
    if by == "python":
        ends_well(start(text))
    else:
        (tmp_path / "folds.py").write_text(textwrap.dedent(text))
        config = RunConfig(backend="script", script=str(tmp_path / "folds.py"), platform="cpu", devices=1)
        with launched(config, runs_dir, about=About(tags=("sweep",))) as run:
            assert run.end().status == "completed"
    the_run(runs_dir, 3)
    runs = [Watched(run) for run in list_runs(runs_dir)]
    assert [(one.end().status, one.end().summary.steps) for one in runs] == [("completed", 5)] * 3
    for one in runs:
        one.wait_gone()
    found = {summarise(one.run).name: list(curve(one, 0, "loss").values()) for one in runs}
    assert found == {f"fold {fold}": [10.0 * fold + step for step in range(1, 6)] for fold in range(3)}
    if by == "tuiapp run":
        further = [read_about(one.run)[0] for one in runs if one.run != run.run]
        assert {about.tags for about in further} == {("sweep",)}
        assert {about.note for about in further} == {
            f"Run {number} of the script that was launched as {run.run.run_id}." for number in (2, 3)
        }


def test_what_is_wrong_in_a_call_costs_that_alone_and_is_said_once(start: Start, runs_dir: Path) -> None:
    error = ends_well(
        start("""
        import torch, tuiapp
        run = tuiapp.init(config=5, total_steps="many")
        for step in range(1, 4):
            run.config.update(5)
            run.summary.update(object())
            run.evaluation(None)
            run.checkpoint(None)
            run.log(None)
            tuiapp.log({"x": torch.ones(2), "huge": 10**400, "loss": 1.0}, step=step)
        run.config.update([("depth", 2)])
    """)
    )
    watched = the_run(runs_dir)
    assert watched.end().status == "completed"
    assert curve(watched, 0, "loss") == {1: 1.0, 2: 1.0, 3: 1.0}
    assert curve(watched, 0, "x") == curve(watched, 0, "huge") == {}
    assert [fact.config for fact in watched.of(Facts) if fact.config] == [{"depth": 2}]
    once = ("config: ", "summary: ", "init: ", "evaluation: ", "checkpoint: ", "log: ")
    for said in (*once, "x is not a number (Tensor)", "huge is too large: it is not recorded"):
        assert error.count(said) == 1, (said, error)
    assert "Traceback" not in error


@pytest.mark.parametrize("leave", mostly_nightly(["sys.exit(3)", "exit(3)", "quit(code=3)"], "sys.exit(3)"))
def test_leaving_with_a_code_is_a_failure(start: Start, runs_dir: Path, leave: str) -> None:
    start(f"import sys, tuiapp\ntuiapp.log({{'loss': 1}})\n{leave}").communicate(timeout=DEADLINE_S)
    end = the_run(runs_dir).end()
    assert (end.status, end.reason) == ("failed", "rank 0 exited with code 3 at step 1, without saying why")


@pytest.mark.nightly
@pytest.mark.parametrize("then", ["pass", "raise RuntimeError('instead')"])
def test_sys_exit_that_is_caught_is_no_end(start: Start, runs_dir: Path, then: str) -> None:
    text = "import sys, tuiapp\ntuiapp.log({'loss': 1})\ntry: sys.exit(3)\nexcept SystemExit: pass\n" + then
    start(text).communicate(timeout=DEADLINE_S)
    end = the_run(runs_dir).end()
    assert (end.status, "instead" in end.reason) == (("completed", False) if then == "pass" else ("failed", True))
