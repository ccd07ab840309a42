"""What is shown of metrics of any name, of a script's loss and evaluation, and of what it says of its run."""

from __future__ import annotations

import csv
import io
import json
from io import StringIO
from pathlib import Path

import msgspec
import pytest

from tests.kit import histories as h
from tests.kit import own_metrics as own
from tests.kit.command_line import Command
from tests.kit.digest_runs import digest_of
from tests.kit.recorded import record
from tuiapp.trainers.config.run_config import RunConfig, to_toml_values
from tuiapp.trainers.contract.events import AnyEvent, Checkpoint, Facts, LogLine, Metrics, Summary
from tuiapp.trainers.contract.metrics import evaluation_of, held_out_of, loss_of
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.run.notice import in_a_sentence
from tuiapp.trainers.state.condition import headline
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.outcome import summary_of
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.summary import summarise
from tuiapp.verbs.narration import PlainNarrator, describe_end, live_view, progress_words
from tuiapp.view.notification import ending

SCRIPT = RunConfig(backend="script", script="/x/train.py", platform="cpu")
FIRST, SECOND = own.RUN_ID, own.RUN_ID[:-1] + "2"


def history_of(name: str, **config: object) -> list[AnyEvent]:
    """A run whose journal is too long for a list to find the facts at its ends."""
    begun, *rest = own.completed(config=to_toml_values(SCRIPT))
    noise = [LogLine(rank=0, stream="stdout", text="x" * 1000, **h.at(1)) for _ in range(100)]
    said = [Facts(name=name, config=config, total_steps=200, **h.at(1)), Facts(summary={"best": 0.5}, **h.at(1))]
    return [begun, *noise[:50], *said, *noise[50:], *rest]


@pytest.fixture
def two_scripts(runs_dir: Path) -> Path:
    record(runs_dir, FIRST, history_of("baseline", lr=0.1, layers=[1, 2], only=1), SCRIPT)
    run = record(runs_dir, SECOND, (events := history_of("wide\x1b[31m", lr=0.2, layers=[1, 2])), SCRIPT)
    digest_of(run, events)
    return runs_dir


def test_show(tuiapp: Command, two_scripts: Path) -> None:
    facts = json.loads(tuiapp("show", FIRST, "--json").out)
    assert (facts["name"], facts["script_config"]) == ("baseline", {"lr": 0.1, "layers": [1, 2], "only": 1})
    assert facts["script_summary"] == {"best": 0.5}
    assert facts["script_metrics"]["train/ppl"] == own.value_of("train/ppl", 120)
    lines = [line.split() for line in tuiapp("show", SECOND).out.splitlines()]
    assert ["name", "wide"] in lines
    for line in (["lr", "0.2"], ["layers", "[1,", "2]"], ["best", "0.5"]):
        assert line in lines
    assert ["train/ppl", f"{own.value_of('train/ppl', 120):.3f}"] in lines


def test_compare(tuiapp: Command, two_scripts: Path) -> None:
    lines = [line.split() for line in tuiapp("compare", FIRST, SECOND).out.splitlines()]
    assert ["lr", "0.1", "0.2"] in lines
    assert ["only", "1", "–"] in lines
    assert not any("layers" in line for line in lines)
    assert json.loads(tuiapp("compare", FIRST, SECOND, "--json").out)["differing"] == {
        "lr": [0.1, 0.2], "only": [1, None],
    }  # fmt: skip


LAST = {"train/loss": 0.25, "eval/loss": 0.5, "eval/accuracy": 0.75}


def history(**last: float | None) -> list[AnyEvent]:
    begun, *rest = own.running(config=to_toml_values(SCRIPT))
    trained = {name: [value] for name, value in last.items() if name.startswith("train/")}
    evaluated = {name: [value] for name, value in last.items() if name.startswith("eval/")}
    events: list[AnyEvent] = [begun, *rest]
    events += [Metrics(rank=0, first_step=121, values=values, **h.at(63)) for values in (trained, evaluated) if values]
    return [*events, Checkpoint(step=121, epoch=0.0, name="/x/out/121.pt", bytes=2048, seconds=0.0, **h.at(64))]


def summed(events: list[AnyEvent]) -> Summary:
    state = RunState()
    for event in events:
        apply(state, event)
    return summary_of(state, 60.0)


@pytest.mark.parametrize(
    ("names", "loss", "evaluation"),
    [
        (["a", "train/loss", "loss"], "loss", ("", "", "")),
        (["eval/loss", "train/loss", "aux/loss"], "train/loss", ("eval", "eval/loss", "")),
        (["val/acc", "gloss"], "", ("val", "", "val/acc")),
        (["val/loss", "test/accuracy"], "", ("test", "", "test/accuracy")),
        (["val_loss", "train_loss", "val_acc", "val_time"], "train_loss", ("val", "val_loss", "val_acc")),
        (["closs", "my_val_loss"], "", ("", "", "")),
        (["Loss/train", "Loss/val", "Accuracy/val"], "Loss/train", ("val", "Loss/val", "Accuracy/val")),
        (["loss/eval", "loss/train"], "loss/train", ("eval", "loss/eval", "")),
    ],
)
def test_the_rule(names: list[str], loss: str, evaluation: tuple[str, str, str]) -> None:
    assert (loss_of(names), evaluation_of(names)) == (loss, evaluation)
    assert held_out_of(loss, names) == evaluation[1]


@pytest.mark.parametrize(
    ("trained", "evaluated"), [("train_f1", "val_f1"), ("f1", "eval_f1"), ("mAP/train", "mAP/test"), ("val_", "")]
)
def test_any_metric_has_its_evaluation_of_the_same_spelling(trained: str, evaluated: str) -> None:
    assert held_out_of(trained, ["other/val", "val_other", trained, evaluated]) == evaluated


@pytest.mark.parametrize("over", [True, False], ids=["ended", "live"])
def test_lists_and_show_have_its_loss_and_evaluation(tuiapp: Command, runs_dir: Path, over: bool) -> None:
    events = history(**LAST)
    summary = summed(events)
    assert (summary.loss, summary.test_loss, summary.test_accuracy) == (0.25, 0.5, 0.75)
    end = [msgspec.structs.replace(own.ended(step=121), summary=summary)] if over else []
    run = record(runs_dir, own.RUN_ID, [*events, *end], SCRIPT)
    found = summarise(run).summary
    assert (found.loss, found.test_loss, found.test_accuracy, found.evaluated_on) == (0.25, 0.5, 0.75, "eval")
    (row,) = json.loads(tuiapp("runs", "--json").out)
    assert (row["loss"], row["test_loss"], row["best_accuracy"]) == (0.25, 0.5, 0.75)
    lines = [" ".join(line.split()) for line in tuiapp("show", own.RUN_ID).out.splitlines()]
    for line in ("loss 0.2500", "accuracy 75.0 %", "eval loss 0.5000", "step 121 2.00 KiB /x/out/121.pt"):
        assert line in lines
    (saved,) = json.loads(tuiapp("show", own.RUN_ID, "--json").out)["checkpoints"]
    assert saved == {"name": "/x/out/121.pt", "step": 121, "bytes": 2048}


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (LAST, "eval accuracy 75.0 %"),
        ({"train/loss": 0.25, "eval/loss": 0.5}, "eval loss 0.5"),
        ({"train/loss": 0.25}, f"eval loss {own.value_of('eval/loss', 120):.4g}"),
    ],
)
def test_the_end_says_what_it_came_to(runs_dir: Path, last: dict[str, float], words: str) -> None:
    events = history(**last)
    events.append(msgspec.structs.replace(own.ended(step=121), summary=summed(events)))
    run = record(runs_dir, own.RUN_ID, events, SCRIPT)
    state = RunState()
    for event in events:
        apply(state, event)
    banner, info = headline(state), summarise(run)
    assert banner is not None
    for text in (banner.text, describe_end(state, run), in_a_sentence(info), ending(info)):
        assert words in text
    assert state.ranks[0].loss == 0.25


OTHER = own.RUN_ID[:-1] + "2"


@pytest.fixture
def recorded(runs_dir: Path) -> Path:
    record(runs_dir, own.RUN_ID, own.completed(2))
    record(runs_dir, OTHER, own.running())
    return runs_dir


def test_show_and_runs_give_what_is_known(tuiapp: Command, recorded: Path) -> None:
    done = tuiapp("show", own.RUN_ID)
    assert (done.code, done.err) == (0, "")
    facts = dict(line.split(maxsplit=1) for line in done.out.splitlines()[:9] if " " in line)
    assert (facts["steps"], facts["loss"], facts["examples/s"]) == ("120", "–", "–")
    for name in (own.RUN_ID, OTHER):
        shown = json.loads(tuiapp("show", name, "--json").out)
        assert (shown["steps"], shown["epochs"], shown["missing_steps"]) == (120, None, [])
    # Where no end sums it up, a script's loss is found by its name.
    assert shown["loss"] == pytest.approx(own.value_of("train/loss", 120), abs=1e-3)
    listed = tuiapp("runs").out.splitlines()
    assert [line.split()[0] for line in listed[1:]] == [OTHER, own.RUN_ID]
    assert "120" in listed[1].split()


def test_compare_and_export(tuiapp: Command, recorded: Path) -> None:
    done = tuiapp("compare", own.RUN_ID, OTHER)
    assert (done.code, done.err) == (0, "")
    lines = {line.split("  ")[0]: line.split()[-2:] for line in done.out.splitlines() if line}
    assert lines["epochs done"] == ["–", "–"]
    assert lines["steps"] == ["120", "120"]
    rows = list(csv.DictReader(io.StringIO(tuiapp("export", OTHER, "--what", "metrics").out)))
    assert list(rows[0])[6:] == [*own.TRAIN, *own.EVALUATED]
    assert [int(row["step"]) for row in rows if row["eval/f1"]] == [20, 40, 60, 80, 100, 120]
    assert float(rows[0]["train/ppl"]) == own.value_of("train/ppl", 2)


def test_a_headless_run_says_what_is_known() -> None:
    stream, state = StringIO(), RunState()
    narrator = PlainNarrator(stream, RunDir(Path("/home/ada/runs") / own.RUN_ID))
    events = [*own.running(2), own.logged(120, ["test/accuracy"], seconds=62.0)]
    for event in events:
        apply(state, event)
        narrator.event(event, state)
    said = [line.split("  ", 1)[1] for line in stream.getvalue().splitlines()]
    assert said[:2] == [f"run {own.RUN_ID}", "run started on gpubox: 2 rank processes"]
    assert said[-1].startswith("accuracy ")
    assert progress_words(state).startswith("step 120 · ")
    lines = live_view(state, h.START + 62.0, 120)
    assert lines[0] == "running       step 120"
    assert "elapsed 1m 02s" in lines[1]
    for unknown in ("epoch", "/0", " 0 %", "─"):
        assert unknown not in "\n".join(lines)
