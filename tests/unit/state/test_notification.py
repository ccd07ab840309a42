"""How a run's end is told, and what is shown of a run of the user's own script: nothing that it did not report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit import histories as h
from tests.kit.folding import fold
from tests.kit.runs_app import info
from tuiapp.trainers.config.run_config import RunConfig, to_toml_values
from tuiapp.trainers.contract.events import AnyEvent, Facts, RunEnded, RunStarted, StopRequested, Summary
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import About
from tuiapp.trainers.state.condition import headline
from tuiapp.trainers.state.run_state import names
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.verbs.narration import live_view, progress_words
from tuiapp.view.notification import ending, notification
from tuiapp.view.run_list import BY_NAME, words_of


@pytest.mark.parametrize(
    ("kind", "environment", "sequence"),
    [
        ("osc9", {"TERM": "xterm"}, "\x1b]9;tuiapp: it ended, well\x07"),
        ("osc777", {"TERM": "foot"}, "\x1b]777;notify;tuiapp;it ended, well\x07"),
        ("off", {"TERM": "xterm"}, ""),
        ("osc9", {"TERM": "linux"}, ""),
        ("osc9", {}, ""),
        ("osc9", {"TERM": "tmux", "TMUX": "/tmp/tmux"}, "\x1bPtmux;\x1b\x1b]9;tuiapp: it ended, well\x07\x1b\\"),
    ],
)
def test_the_terminal_is_asked_in_its_own_words(kind: str, environment: dict[str, str], sequence: str) -> None:
    assert notification(kind, "tuiapp", "it ended; well", environment) == sequence


def test_nothing_of_the_text_can_end_the_sequence_or_begin_another() -> None:
    hostile = "a\x07b\x1b]52;c;aGk=\x07\x9c\x1b\\d\u202e"
    sequence = notification("osc9", "t\x1b", hostile, {"TERM": "xterm"})
    assert sequence.count("\x1b") == 1
    assert sequence.count("\x07") == 1
    assert sequence.endswith("\x07")


def test_an_ending_has_the_name_of_the_run() -> None:
    assert ending(info(1)) == "net on digits completed, test accuracy 90.0 %"
    named = replace(info(1), about=About(name="baseline"))
    assert ending(named) == "baseline (net on digits) completed, test accuracy 90.0 %"


CONFIG = RunConfig(backend="script", script="/x/train.py", platform="cpu", devices=2, stop_grace_s=90)


def started(attempt: int = 1) -> RunStarted:
    return RunStarted(
        run_id=h.RUN_ID, attempt=attempt, host="box", pid=1, config=to_toml_values(CONFIG), world_size=2,
        steps_per_epoch=0, total_steps=0, **h.at(0),
    )  # fmt: skip


def ended(status: str, **more: object) -> AnyEvent:
    return RunEnded(status=status, reason="on request", summary=Summary(seconds=9, **more), **h.at(9))  # type: ignore[arg-type]


def test_names_and_unknown_totals() -> None:
    state = fold([started()])
    assert names(state.config) == ["script", "train.py", ""]
    assert state.is_script
    assert (state.progress, state.total_steps, state.epochs) == (None, 0, 0)
    assert not any(word in line for line in live_view(state, h.START, 120) for word in ("0/0", "%", "epoch"))
    assert progress_words(state) == ""


@pytest.mark.parametrize(("status", "can"), [("stopped", True), ("failed", True), ("completed", False)])
def test_it_can_be_started_again_unless_it_is_complete(status: str, can: bool) -> None:
    state = fold([started(), ended(status)])
    assert state.can_resume is can
    found = headline(state)
    assert found is not None
    assert ("u: start it again" in found.text) is can
    assert "step" not in found.text
    assert "epoch" not in found.text


@pytest.mark.parametrize("status", ["completed", "stopped", "failed"])
def test_its_end_lists_what_it_summed_up_and_its_configuration(status: str) -> None:
    said = Facts(config={"dropout": 0.25, "layers": 3}, summary={"f1": 0.5}, **h.at(1))
    found = headline(fold([started(), said, ended(status)]))
    assert found is not None
    assert "f1 0.5 · dropout 0.25 · layers 3" in found.text


def test_its_end_leaves_a_library_s_configuration_out() -> None:
    said = Facts(config={"warmup_steps": 3}, defaults=["adam_beta1"], summary={"train_loss": 0.5}, **h.at(1))
    found = headline(fold([started(), said, ended("completed")]))
    assert found is not None
    assert found.text.endswith("train_loss 0.5")


def test_its_end_says_how_many_epochs_it_did() -> None:
    end = RunEnded(status="completed", reason="25 steps", summary=Summary(steps=25, epochs=2.5), **h.at(2))
    found = headline(fold([started(), end]))
    assert found is not None
    assert found.text.startswith("completed: 25 steps · 2.5 epochs")


def test_how_it_stops() -> None:
    found = headline(fold([started(), StopRequested(by="command", save=True, **h.at(1))]))
    assert found is not None
    assert found.text == "SIGTERM sent; the script has 1m 30s to end · s again: stop now"


def test_its_second_start() -> None:
    state = fold([started(), ended("stopped"), started(attempt=2)])
    assert "run started again, attempt 2, on box: 2 rank processes" in state.log[-1].text


def test_in_the_list_of_runs() -> None:
    info = RunInfo(RunDir(Path("runs/x")), "failed", CONFIG, "", Summary(), "rank 0 failed", None)
    assert [BY_NAME[name].cell(info) for name in ("backend", "model", "dataset")] == ["script", "train.py", "–"]
    assert "train.py" in words_of(info)
    assert not {"net", "digits", "adam"} & set(words_of(info).split())
    assert ending(info) == "train.py failed: rank 0 failed"
