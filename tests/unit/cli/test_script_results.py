"""Which metrics of a script are its loss and its evaluation: the same in every list, line and notification."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from tests.kit import histories as h
from tests.kit import own_metrics as own
from tests.kit.command_line import Command
from tests.kit.recorded import record
from tuiapp.trainers.config.run_config import RunConfig, to_toml_values
from tuiapp.trainers.contract.events import AnyEvent, Checkpoint, Metrics, Summary
from tuiapp.trainers.contract.metrics import evaluation_of, held_out_of, loss_of
from tuiapp.trainers.run.notice import in_a_sentence
from tuiapp.trainers.state.condition import headline
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.outcome import summary_of
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.summary import summarise
from tuiapp.verbs.narration import describe_end
from tuiapp.view.notification import ending

SCRIPT = RunConfig(backend="script", script="/x/train.py", platform="cpu")
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
