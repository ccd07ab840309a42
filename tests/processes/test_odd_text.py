"""What a script prints, writes and names cannot end its run, nor where it runs: steps of any size, any bytes."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import dedent

import pytest
from msgspec.structs import replace

from tests.kit.harness import launched
from tuiapp.trainers.config.plan import make_plan, write_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import Alert, LogLine, Metrics, RunEnded
from tuiapp.trainers.contract.journal import JournalReader
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.run.journal_keeper import DigestWriter
from tuiapp.trainers.run.supervisor import Supervisor

ODD = os.fsdecode(b"odd-\xff")


def _of_script(directory: Path, text: str, **keys: object) -> RunConfig:
    (directory / "train.py").write_text(dedent(text))
    config = RunConfig(backend="script", platform="cpu", devices=1, script=str(directory / "train.py"))
    return replace(config, working_directory=str(directory), **keys)


@pytest.mark.nightly
def test_a_step_that_is_out_of_range_is_dropped_and_said_once(tmp_path: Path, runs_dir: Path) -> None:
    text = """
        print("step 1 loss 1.0")
        print("step 1e300 loss 0.5\\n" * 3, flush=True)
        print("step 2 loss 0.25")
        """
    config = _of_script(tmp_path, text, output_pattern=r"step (?P<step>\S+) loss (?P<loss>\S+)")
    with launched(config, runs_dir) as run:
        end = run.end()
        assert (end.status, end.summary.steps, end.summary.loss) == ("completed", 2, 0.25)
        (said,) = (alert.text for alert in run.of(Alert) if alert.kind == "metric")
        assert said.startswith("output_pattern: step ")
        assert said.endswith("not recorded")


@pytest.mark.nightly
def test_a_folder_and_a_step_of_event_files(tmp_path: Path, runs_dir: Path) -> None:
    pytest.importorskip("tensorboard")
    text = """
        import os
        from torch.utils.tensorboard import SummaryWriter
        for name, step in (("logs", 1), ("far", 2**60), ("farther", 2**53)):
            writer = SummaryWriter(name)
            writer.add_scalar("loss", 0.5, step)
            writer.close()
        os.makedirs(b"logs/odd-\\xff")
        os.rename("far", "logs/far")
        os.rename("farther", b"logs/odd-\\xff/farther")
        with open(b"logs/odd-\\xff/events.out.tfevents.9", "wb") as file:
            file.write(b"x" * 100)
        """
    with launched(_of_script(tmp_path, text, tensorboard_dir=str(tmp_path / "logs")), runs_dir) as run:
        end = run.end()
        assert (end.status, end.summary.loss) == ("completed", 0.5), end
        names = {name for event in run.of(Metrics) for name in event.values}
        assert names == {"loss", "odd-\\xff/farther/loss"}
        (said,) = (alert.text for alert in run.of(Alert) if alert.kind == "metric")
        assert f"step {2**60:,}" in said
        assert any("odd-\\xff/events.out.tfevents.9 is not an event file" in line.text for line in run.of(LogLine))


def test_a_supervisor_that_fails_records_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDir(tmp_path / "20261120T101500-torch-ddp-net-3fa1")
    run.commands.mkdir(parents=True)
    plan = make_plan(RunConfig(model="mlp", platform="cpu", devices=1))
    write_plan(run.plan, plan)

    def fail(*_: object) -> None:
        raise OSError(f"no file {ODD}")

    supervisor = Supervisor(run, plan)
    monkeypatch.setattr(supervisor, "_start_processes", fail)
    supervisor._emit(Alert(kind="x", text=ODD))
    begun = supervisor._write

    def write(*, durable: bool = False) -> None:
        begun(durable=durable)
        # From the first event on.
        monkeypatch.setattr(DigestWriter, "write_due", fail)

    monkeypatch.setattr(supervisor, "_write", write)
    supervisor.run()
    *_, end = JournalReader(run.journal).read()
    assert isinstance(end, RunEnded)
    assert end.reason == r"the run's supervisor failed: OSError: no file odd-\xff; see supervisor.log"
