"""The list of runs: columns, order, filter."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as replace_fields

from tests.kit.runs_app import info
from tuiapp.screens.pickers import columns_to_pick
from tuiapp.trainers.contract.events import Facts, Figures, RunStarted, Summary
from tuiapp.trainers.state.known_metrics import metric
from tuiapp.trainers.state.objective import Objective, Objectives, guess, objective_of
from tuiapp.trainers.state.signs import BLEMISH
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.trainers.state.text import format_duration
from tuiapp.view.comparison import differing, results
from tuiapp.view.run_list import (
    BEST,
    COLUMNS,
    best_column,
    both_kinds,
    choose,
    column_of,
    columns_of,
    eta,
    meant,
    objective_words,
    objectives_words,
    order,
    shared,
    unknown_names,
)
from tuiapp.view.run_values import differing_keys
from tuiapp.view.table import fitting

ALL = [info(n, learning_rate=0.1**n) for n in range(4, 0, -1)]


def test_other_commands_do_not_wait_for_them() -> None:
    code = "import sys, tuiapp.verbs.output; from tuiapp.cli import build_parser; build_parser().parse_args(['runs'])"
    code += "; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "tuiapp.cli" in loaded
    assert not {"tuiapp.view.run_list", "tuiapp.actions.action", "tuiapp.trainers.state.summary"} & set(loaded)


def test_the_size_of_a_journal_has_a_column_if_one_is_large() -> None:
    small, large = (replace(info(n), journal_bytes=n << 30, has_large_journal=n > 1) for n in (1, 2))
    assert "journal" not in [one.name for one in columns_of([small])]
    (column,) = [one for one in columns_of([small, large]) if one.name == "journal"]
    assert [column.cell(one) for one in (small, large)] == ["1.00 GiB", f"{BLEMISH} 2.00 GiB"]
    assert order([small, large], "journal") == [large, small]
    assert choose([small, large], "journal>1500000000") == [large]


WHOLE = sum(column.width for column in COLUMNS) + 2 * (len(COLUMNS) - 1)


@pytest.mark.parametrize("width", [0, 10, 40, 74, 114, 194, WHOLE - 1, WHOLE])
def test_columns_fit(width: int) -> None:
    columns = fitting(COLUMNS, width)
    assert sum(column.width for column in columns) + 2 * max(0, len(columns) - 1) <= width
    assert [column for column in COLUMNS if column in columns] == columns
    assert (len(columns) == len(COLUMNS)) == (width == WHOLE)


def test_every_cell_keeps_to_its_column() -> None:
    for one in [*ALL, info(1, "unreadable", problem="x"), info(2, "running")]:
        for column in COLUMNS:
            assert len(column.cell(one)) <= column.width


def test_by_a_column_those_without_a_value_last() -> None:
    unknown = info(9, problem="no configuration")
    assert order([unknown, *ALL], "loss") == [unknown, *ALL]
    assert order([unknown, *ALL], "loss", reverse=True) == [*ALL[::-1], unknown]
    assert order([unknown, *ALL], "devices")[-1] == unknown
    assert order([unknown, *ALL], "devices", reverse=True)[-1] == unknown


def script(number: int, config: dict[str, object], **summary: object) -> RunInfo:
    facts = Facts(time=0.0, mono=0.0, config=config, summary=summary)
    return replace(info(number, backend="script", script="train.py"), facts=facts)


SCRIPTS = [
    script(7, {"lr": 0.5, "opt": "AdamW", "api_key": "abc"}, f1=0.7),
    script(8, {"lr": 0.05, "opt": "sgd"}, f1=0.9),
]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("learning_rate<0.005", ["0004", "0003"]),
        ("lr<=0.02", ["0004", "0003", "0002"]),
        ("lr>0.05", ["0001", "0007"]),
        ("learning_rate=0.5", ["0007"]),
        ("lr!=0.5 script", ["0008"]),
        ("f1>0.8", ["0008"]),
        ("opt:adamw", ["0007"]),
        ("opt!=adamw", ["0004", "0003", "0002", "0001", "0008"]),
        ("test/accuracy>0.1 lr<0.005", ["0004", "0003"]),
        ("steps>1 backend:torch-ddp", ["0004", "0003", "0002", "0001"]),
        ("state:completed", ["0004", "0003", "0002", "0001", "0007", "0008"]),
        ("state:failed", []),
        # What is not written to its end yet filters nothing; what nobody has is nowhere.
        ("lr<", ["0004", "0003", "0002", "0001", "0007", "0008"]),
        ("nobody>1", []),
        ("http://nowhere", []),
        ("lr<many", []),
    ],
)
def test_comparisons(text: str, found: list[str]) -> None:
    assert [one.directory.run_id[-4:] for one in choose([*ALL, *SCRIPTS], text)] == found


def test_what_no_run_has_is_named() -> None:
    assert unknown_names([*ALL, *SCRIPTS], "lr<1 lerning_rate<1 f1>0 tag:x nothing:x") == [
        "no run has 'lerning_rate'. Did you mean 'learning_rate'?"
    ]


def test_by_a_key_or_a_metric() -> None:
    def by(name: str, *, reverse: bool = False) -> list[str]:
        return [one.directory.run_id[-4:] for one in order([*ALL, *SCRIPTS], name, reverse=reverse)]

    assert by("lr") == ["0004", "0003", "0002", "0008", "0001", "0007"]
    assert by("learning_rate", reverse=True) == by("lr")[::-1]
    # More is better: the greatest is first.
    assert by("f1")[:2] == ["0008", "0007"]
    assert by("opt") == by("optimizer")
    assert by("opt")[0] == "0007"


def test_columns_are_those_that_tell_runs_apart() -> None:
    def names(infos: Sequence[RunInfo]) -> list[str]:
        return [one.name for one in columns_of(infos)][:5]

    assert names(ALL) == ["state", "config.learning_rate", "accuracy", "loss", "speed"]
    assert names(ALL[:1]) == ["state", "backend", "model", "dataset", "devices"]
    assert names(SCRIPTS) == ["state", "config.lr", "config.opt", "accuracy", "loss"]
    assert names([ALL[0], *SCRIPTS])[:3] == ["state", "backend", "model"]
    assert "script" in shared(SCRIPTS)[0]
    assert shared([ALL[0], SCRIPTS[0]]) == ["2 CPU"]
    assert "2 GPU" not in shared([info(1, platform="cuda"), info(2)]), "as many of another kind are others"
    columns = {one.name: one for one in columns_of([SCRIPTS[0], script(9, {"api_key": "xyz", "lr": 1 / 3})])}
    # Secrets differ, but that tells nobody anything.
    assert "config.api_key" not in columns
    assert [column_of(f"config.{name}").cell(SCRIPTS[0]) for name in ("api_key", "lr")] == ["***", "0.5"]
    assert columns["config.lr"].cell(script(9, {"lr": 1 / 3})) == "0.333333"


def test_a_key_and_a_metric_of_the_same_name_are_two() -> None:
    runs = [script(1, {"lr": 0.1}, lr=0.001, f1=0.7), script(2, {"lr": 0.2}, lr=0.002, f1=0.8)]
    titles = {one.name: one.title for one in columns_of(runs, first=[column_of("max.f1")])}
    assert {name: title for name, title in titles.items() if name.endswith((".lr", ".f1"))} == {
        "config.lr": "config.lr",
        "metric.lr": "metric.lr",
        "max.f1": "best f1",
    }
    # Equal ones are one: the best is what the metric came to.
    assert "metric.f1" not in titles
    (picked,) = ({name: words for part in columns_to_pick(runs).values() for name, words in part},)
    assert (picked["config.lr"], picked["metric.lr"], picked["metric.f1"]) == ("config.lr", "metric.lr", "f1")
    for text in ("lr<0.15", "config.lr<0.15", "metric.lr<0.0015", "max.f1<0.75"):
        assert choose(runs, text) == runs[:1], text
    assert order(runs, "metric.lr") == order(runs, "config.lr") == order(runs, "lr") == runs
    assert both_kinds(["lr", "config.lr", "f1"], runs) == ["lr is here the configuration key; the metric is metric.lr"]
    (line,) = differing(runs)
    assert line.name == "config.lr"
    assert [meant(name, runs) for name in ("steps", "f1", "metric.nothing", "nothing")] == [
        "steps",
        "metric.f1",
        "",
        "",
    ]


def test_no_path_pattern_line_or_id_tells_runs_apart() -> None:
    gpu = "GPU-8c9e6ba1-2f5e-4c5b-9d4a-01234567890"

    def given(n: int) -> RunInfo:
        own = {"out": f"/data/{n}", "note": f"a {n}", "gpu": f"{gpu}{n}", "log_dir": f"x{n}", "size": f"s{n}"}
        found = info(n, backend="script", script="t.py", output_pattern=f"{n} (?P<loss>.)", arguments=f"-{n}")
        return replace(found, facts=Facts(time=0.0, mono=0.0, config={**own}))

    assert differing_keys([given(1), given(2)]) == ["size"]
    # Of a script that says nothing itself, its arguments are its keys.
    mute = [info(n, backend="script", script="t.py", arguments=f"--lr 0.{n} --out-dir /a/{n} --fast") for n in (1, 2)]
    assert differing_keys(mute) == ["lr"]
    assert choose(mute, "lr<0.15 fast=true") == mute[:1]


def test_scripts_metrics_are_columns_before_ids() -> None:
    last = {"loss": 1.0, "val/loss": 2.0, "val/ppl": 3.0, "epoch": 4.0, "tokens": 5.0, "again": 5.0}
    runs = [
        replace(
            one,
            summary=Summary(
                steps=10 * n, seconds=n, loss=n, test_loss=n, evaluated_on="val",
                metrics={name: Figures(n * each, 0.0, 9.0) for name, each in last.items()},
            ),
        )
        for n, one in enumerate(SCRIPTS, 1)
    ]  # fmt: skip
    columns = columns_of(runs)
    ranked = [one.name for one in sorted(columns, key=lambda one: one.rank)]
    assert ranked.index("metric.val/ppl") < ranked.index("metric.tokens") < ranked.index("run")
    # A trainer's bookkeeping is none, nor is what another column says already.
    assert not {"metric.epoch", "metric.again", "metric.loss", "metric.val/loss"} & {*ranked}
    # State, steps and took have room before any key.
    assert ranked[:4] == ["state", "steps", "took", "config.lr"]


def test_started_is_when_it_began() -> None:
    def began(number: int, at: float, status: Any = "completed") -> RunInfo:
        begun = RunStarted(run_id="", host="", pid=0, config={}, world_size=1, total_steps=580)
        return replace(info(number, status), started=at, begun=begun)

    waits = replace(info(9, "queued"), place=1)
    early, late = began(2, 500.0), began(1, 900.0)
    assert order([waits, early, late]) == [waits, late, early]
    assert order([waits, early, late], live_first=False) == [late, early, waits]
    assert order([waits, early, late], reverse=True, live_first=False) == [early, late, waits]
    assert column_of("started").cell(waits) == "–"
    live = began(3, 100.0, "running")
    assert live.config is not None
    assert column_of("eta").cell(live).strip() == format_duration(290 * live.config.global_batch_size / 903.0)
    unknown = replace(live, summary=replace_fields(live.summary, examples_per_second=None))
    assert eta(unknown) is None, "its first steps compiled"
    script = replace(unknown, config=replace_fields(live.config, backend="script", script="a.py"))
    assert eta(script) == live.summary.seconds
    begun = replace(script, summary=replace_fields(script.summary, steps=28))
    assert eta(begun) is None, "its mean pace is that of its start"


def test_what_the_runs_are_best_by_is_what_their_checkpoints_are() -> None:
    assert guess([replace(one, config=replace_fields(one.config, best="loss")) for one in ALL if one.config]) == guess(
        [info(1, best="loss")]
    )
    by_loss = [replace(info(n, best="loss"), summary=Summary(test_loss=0.1 * n, test_accuracy=0.9)) for n in (1, 2)]
    assert guess(by_loss) == Objective("test/loss", rises=False)
    assert guess([*by_loss, ALL[0]]) == Objective("test/accuracy", rises=True)


def test_unlike_runs_are_not_ranked_together_unsaid() -> None:
    by = Objective("test/accuracy", rises=True)
    assert objective_words(by, ALL) == "highest test/accuracy"
    others = [info(7, model="mlp"), info(8, dataset="mnist"), info(9, "queued", problem="x")]
    assert objective_words(by, [*ALL, *others]) == "highest test/accuracy of 2 data sets and 2 models"


def test_each_kind_of_data_has_an_objective_of_its_own() -> None:
    def text(number: int, loss: float) -> RunInfo:
        # It reports no accuracy.
        summary = Summary(test_loss=loss, best_loss=loss)
        return replace(info(number, dataset="shakespeare", model="gpt-small"), summary=summary)

    images = [replace(one, summary=Summary(test_accuracy=0.9 + n / 100)) for n, one in enumerate(ALL[:3])]
    scripts = [replace(one, summary=Summary()) for one in SCRIPTS]
    infos = [text(12, 1.5), scripts[0], images[0], text(13, 1.25), images[2], scripts[1], images[1]]
    objectives = Objectives.of_runs(infos, "", rises=False)
    assert [str(one) for one in objectives.distinct] == ["highest test/accuracy", "lowest test/loss", "highest f1"]
    best = best_column(objectives)
    assert best is not None
    ranked = order(infos, best)
    assert [best.cell(one) for one in ranked] == [
        "92.0 %",
        "91.0 %",
        "90.0 %",
        "loss 1.250",
        "loss 1.500",
        "f1 0.9000",
        "f1 0.7000",
    ]
    assert order(infos, best, reverse=True) == [*ranked[2::-1], *ranked[4:2:-1], *ranked[:4:-1]]
    columns = [one.name for one in columns_of(infos, first=[best])]
    assert columns.count(BEST) == 1
    assert not {"accuracy", "best_loss"} & {*columns}
    assert objectives_words(objectives, infos) == "highest test/accuracy, lowest test/loss, highest f1"
    # A metric that the user chose is that of all that have it.
    chosen = Objectives.of_runs(infos, "test/loss", rises=False)
    assert [str(one) for one in chosen.distinct] == ["highest test/accuracy", "lowest test/loss", "highest f1"]
    # Of one kind it is a column as others.
    assert getattr(best_column(Objectives.of_runs(images, "", rises=True)), "name", "") == "max.test/accuracy"


def test_what_no_script_reports_has_no_column() -> None:
    def names(infos: Sequence[RunInfo]) -> set[str]:
        return {one.name for one in columns_of(infos)} & {"accuracy", "loss", "speed", "took"}

    mute = [replace(one, summary=Summary(seconds=3.0, loss=0.5)) for one in SCRIPTS]
    assert names(mute) == {"loss", "took"}
    assert names([mute[0], SCRIPTS[1]]) == {"accuracy", "loss", "speed", "took"}
    # A trainer will report them.
    assert "accuracy" in names([replace(ALL[0], summary=Summary())])


def test_the_best_run() -> None:
    by_accuracy = guess(ALL)
    assert by_accuracy == Objective("test/accuracy", rises=True)
    assert (str(by_accuracy), by_accuracy.sort) == ("highest test/accuracy", "max.test/accuracy")
    better = replace(ALL[2], summary=replace_fields(ALL[2].summary, test_accuracy=0.5, best_accuracy=0.95))
    # By its best evaluation, though the last is the lowest of all.
    assert by_accuracy.best([*ALL[:2], better]) is better
    assert by_accuracy.turned.best([*ALL[:2], better]) is better
    # None is better than the others.
    assert by_accuracy.best(ALL) is None
    assert by_accuracy.best([]) is None
    assert Objective("f1", rises=True).best([*ALL, *SCRIPTS]) is SCRIPTS[1]
    # A key is no result; in per cent or not, accuracies are the same.
    assert Objective("lr", rises=False).best(SCRIPTS) is None
    scripts = [replace(ALL[n], summary=Summary(metrics={"acc": Figures(*3 * [x])})) for n, x in ((0, 0.9), (1, 85.0))]
    assert Objective("acc", rises=True).best(scripts) is scripts[0]
    # A completed run is the best of equal ones.
    equal = [replace(ALL[1], status="failed"), ALL[0], better]
    summary = equal[0].summary
    lesser = replace(ALL[2], summary=replace_fields(summary, test_accuracy=0.1))
    assert by_accuracy.best([*equal[:2], lesser]) is ALL[0]
    assert order([*equal[:2], lesser], by_accuracy.sort) == [ALL[0], equal[0], lesser]
    assert str(objective_of(ALL, "f1", rises=True)) == "highest test/accuracy"
    assert str(objective_of(SCRIPTS, "f1", rises=False)) == "lowest f1"


def test_of_a_script_the_best_value_of_any_metric_counts() -> None:
    figures = [(0.5, 0.2, 0.9), (0.6, 0.1, 0.7)]
    runs = [
        replace(one, summary=Summary(metrics={"wer": Figures(*each)}))
        for one, each in zip(SCRIPTS, figures, strict=True)
    ]
    assert guess(runs) == Objective("f1", rises=True)
    assert Objective("wer", rises=False).best(runs) is runs[1]
    assert Objective("wer", rises=True).best(runs) is runs[0]
    # Lists show, sort and compare the last value.
    assert order(runs, "wer") == runs
    assert choose(runs, "wer>0.55") == runs[1:]


@pytest.mark.parametrize(
    ("summary", "f1", "guessed"),
    [
        ({"loss": 0.5}, 0.7, Objective("f1", rises=True)),
        ({"loss": 0.5, "test_loss": 0.4, "evaluated_on": "val"}, None, Objective("val/loss", rises=False)),
        ({"loss": 0.5}, None, Objective("loss", rises=False)),
        ({}, None, None),
    ],
)
def test_what_runs_are_best_by_is_guessed(summary: dict[str, Any], f1: float | None, guessed: Objective | None) -> None:
    facts = Facts(time=0.0, mono=0.0, summary={} if f1 is None else {"f1": f1})
    assert guess([replace(one, summary=Summary(**summary), facts=facts) for one in ALL]) == guessed


@pytest.mark.parametrize(
    ("name", "rises"),
    [("eval/f1", True), ("top1_acc", True), ("val/rougeL", True), ("loss", False), ("wer", False), ("facc", False)],
)
def test_whether_more_is_better(name: str, rises: bool) -> None:
    assert metric(name).rises is rises


def test_only_keys_that_differ() -> None:
    assert [line.name for line in differing(ALL[:2])] == ["learning_rate"]
    assert differing([ALL[0], ALL[0]]) == []
    assert differing([ALL[0], info(9, problem="x")]) == []
    assert differing([]) == []
    assert [line.values for line in results(ALL[:2]) if line.name == "state"] == [("✓ completed", "✓ completed")]


def test_the_best_test_loss_is_compared_where_a_run_is_best_by_it() -> None:
    assert "best test loss" not in [line.name for line in results(ALL)]
    assert "best test loss" in [line.name for line in results([*ALL, info(9, best="loss")])]


def test_evaluations_are_called_as_the_scripts_call_them() -> None:
    of_val = [replace(one, summary=Summary(evaluated_on="val", test_loss=0.5)) for one in ALL[:2]]
    assert "val loss" in [line.name for line in results(of_val)]
    assert "test loss" in [line.name for line in results([*of_val, ALL[2]])]


def test_a_run_that_has_not_begun_has_done_nothing_yet() -> None:
    """Else a group's mean would be lower for each run that waits."""
    waits = replace(info(1, "queued"), summary=Summary(steps=0, seconds=0.0))
    by_name = {column.name: column for column in COLUMNS}
    for name, shown in (("took", "–"), ("steps", "–")):
        figure = by_name[name].figure
        assert figure is not None
        assert (figure.value(waits), by_name[name].cell(waits).strip()) == (None, shown)
        assert figure.value(replace(waits, status="failed")) == 0
    # As one that was preempted.
    again = replace(waits, summary=Summary(steps=149, seconds=20.0))
    assert [by_name[name].cell(again).strip() for name in ("took", "steps")] == ["20s", "149"]
