"""Groups in a list of runs: what is folded, its order, its star, and what its row says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as replace_fields

from tests.kit.runs_app import info
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import Facts, RunStarted, Summary
from tuiapp.trainers.contract.sidecars import About
from tuiapp.trainers.state.objective import Objective, Spread
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.trainers.state.text import format_duration
from tuiapp.view.comparison import against
from tuiapp.view.groups import (
    ListRow,
    Row,
    RunGroup,
    arrange,
    came_to,
    fold,
    grouped,
    has_best,
    listed,
    refreshed,
    runs_of,
    spread_words,
    stars,
)
from tuiapp.view.run_list import BY_NAME, COLUMNS, NEWEST, column_of, columns_of, state_counts
from tuiapp.view.table import Column

BY_ACCURACY = Objective("test/accuracy", rises=True)


def run(number: int, accuracy: float, status: Any = "completed", group: str = "", **keys: Any) -> RunInfo:
    found = info(number, status, **keys)
    summary = replace_fields(found.summary, test_accuracy=accuracy, loss=1 - accuracy)
    name = f"rate={keys['learning_rate']} seed={keys['seed']}" if group and keys else ""
    return replace(found, summary=summary, about=About(group=group, name=name))


SWEEP = [
    run(9, 0.96, group="sweep", learning_rate=0.1, seed=1),
    run(8, 0.94, group="sweep", learning_rate=0.1, seed=0),
    run(7, 0.90, group="sweep", learning_rate=0.01, seed=1),
    run(6, 0.88, group="sweep", learning_rate=0.01, seed=0),
]
SEEDS = [run(5, 0.97, seed=2), run(4, 0.93, seed=1), run(3, 0.30, "failed", seed=0)]
SINGLE = [run(2, 0.955, model="mlp"), run(1, 0.5, "running", model="resnet18")]
ALL = [*SWEEP, *SEEDS, *SINGLE]


def numbers(rows: list[Row]) -> list[Any]:
    return [
        numbers(list(row.rows)) if isinstance(row, RunGroup) else int(row.directory.run_id[-4:], 16) for row in rows
    ]


def shown(rows: list[Row], *opened: str) -> list[ListRow]:
    return listed(rows, lambda group: "all" in opened or group.name in opened)


def cells(column: Column[RunInfo], rows: list[ListRow]) -> list[str]:
    drawn = grouped(column, rows)
    return [drawn.cell(row) for row in rows]


def test_groups_and_runs_that_differ_in_seed_alone_are_folded() -> None:
    assert numbers(fold(ALL)) == [[[9, 8], [7, 6]], [5, 4, 3], 2, 1]
    # A group of one, and the same run twice, is none; they keep their places.
    assert numbers(fold([SWEEP[0], SINGLE[0], run(3, 0.9), run(1, 0.9, model="mlp")])) == [9, 2, 3, 1]
    # A group whose runs differ in seed alone has no group in it.
    assert numbers(fold(SWEEP[:2])) == [[9, 8]]
    group = fold(SWEEP[:2])[0]
    assert isinstance(group, RunGroup)
    assert (group.name, group.is_alike) == ("sweep", True)


def test_its_key_is_the_same_while_runs_come_and_go() -> None:
    def key(*infos: RunInfo) -> str:
        (row,) = fold(infos)
        assert isinstance(row, RunGroup)
        return row.key

    assert key(*SEEDS) == key(*SEEDS[1:]) == key(run(20, 0.1, seed=8, device_ids=("GPU-1",)), *SEEDS)
    assert key(*SEEDS) != key(*SWEEP)


@pytest.mark.parametrize(
    ("keys", "folded"),
    [
        ([{"arguments": "--lr 1 --seed 3"}, {"arguments": "--seed=4 --lr 1"}], True),
        ([{"arguments": "--lr 1 --seed 3"}, {"arguments": "--lr 2 --seed 4"}], False),
        ([{"facts": {"seed": 1, "lr": 2}}, {"facts": {"seed": 2, "lr": 2}}], True),
        ([{"values": "lr=2 seed=1"}, {"values": "lr=2 seed=2"}], True),
        ([{"values": "lr=2 seed=1"}, {"values": "lr=3 seed=2"}], False),
        ([{"facts": {"seed": 1, "lr": 2}}, {"facts": {"seed": 2, "lr": 3}}], False),
    ],
)
def test_of_a_script_the_seed_is_in_its_arguments_or_in_what_it_says(keys: list[dict[str, Any]], folded: bool) -> None:
    runs = [
        replace(
            info(
                number, backend="script", script="train.py", **{key: one for key, one in each.items() if key != "facts"}
            ),
            facts=Facts(time=0.0, mono=0.0, config=each.get("facts", {})),
        )
        for number, each in enumerate(keys)
    ]
    assert (len(fold(runs)) == 1) is folded


def test_the_mean_is_of_completed_runs() -> None:
    def spread(*infos: RunInfo) -> Spread | None:
        (group,) = fold(infos)
        assert isinstance(group, RunGroup)
        return Spread.of(map(BY_ACCURACY.value, group.counted))

    found, figure = spread(*SEEDS), BY_NAME["accuracy"].figure
    assert found is not None
    assert figure is not None
    assert found.mean == pytest.approx(0.95)
    assert found.size == 2
    assert found.deviation == pytest.approx(0.02828427)
    assert spread_words(found, figure) == "95.0 ± 2.8 %"
    assert spread_words(found._replace(deviation=0.0), figure) == "95.0 %"
    # While none is, of all.
    live = spread(*(replace(one, status="running") for one in SEEDS))
    assert live is not None
    assert live.size == 3
    assert Spread.of([0.97, None]) == (0.97, None, 0.97, 0.97, 0.97, 1)
    assert Spread.of([None]) is None


def test_what_its_row_says() -> None:
    rows = shown(fold(ALL))
    assert cells(BY_NAME["state"], rows) == ["▸ ✓ 4 completed", "▸ ✓ 2  ✖ 1", "  ✓ completed", "  ● running"]
    assert cells(BY_NAME["name"], rows)[0] == "sweep"
    # Different runs have no mean: of the best of each it is the best and whose, of other results the extremes.
    best = ["95.0 ± 1.4 % rate=0.1", "95.0 ± 2.8 %", "95.5 %", "50.0 %"]
    assert cells(BY_NAME["accuracy"], rows) == cells(column_of(BY_ACCURACY.sort), rows) == best
    assert cells(BY_NAME["loss"], rows)[:2] == ["0.0400–0.1200", "0.0500 ± 0.028"]
    group, figure = rows[0].group, column_of("min.loss").figure
    assert group is not None
    assert figure is not None
    assert came_to(group, figure, 20) == "0.0500 ± 0.014 …=0.1"
    assert cells(column_of("learning_rate"), rows)[0] == "0.01–0.1"
    assert cells(column_of("seed"), rows)[:2] == ["0–1", "0–2"]
    assert cells(BY_NAME["model"], rows)[:2] == ["net", "net"]
    assert state_counts(SEEDS, in_words=True) == "2 completed · 1 failed"
    for column in COLUMNS:
        drawn = grouped(column, rows)
        assert all(len(drawn.draw(row)) == drawn.width for row in rows)


def test_how_far_live_runs_are() -> None:
    begun = RunStarted(run_id="", host="", pid=0, config={}, world_size=1, total_steps=580)

    def half(number: int, rate: float, **more: Any) -> RunInfo:
        found = replace(run(number, 0.5, "running", **more), begun=begun)
        return replace(found, summary=replace_fields(found.summary, examples_per_second=rate))

    waits = replace(run(3, 0.0, "queued", seed=3), place=1)
    alone, seeds = half(9, 100.0, model="mlp"), [half(5, 200.0, seed=1), half(4, 100.0, seed=2), waits, SEEDS[0]]
    rows = shown(fold([alone, *seeds, *SINGLE]))
    assert cells(BY_NAME["progress"], rows) == ["━━━━────", "━━━━────", "", ""]
    assert BY_NAME["progress"].cell(replace(alone, summary=Summary(steps=100))) == "━───────"
    # Of a group it is the last one's.
    left = format_duration(290 * (alone.config or RunConfig()).global_batch_size / 100.0)
    assert cells(BY_NAME["eta"], rows) == [left, left, "", ""]
    live = {"progress", "eta"}
    assert {one.name for one in columns_of([alone, *SINGLE])} >= live
    assert not live & {one.name for one in columns_of([waits, *SEEDS])}


def test_what_a_row_without_a_name_is_called() -> None:
    rows = shown(fold([*SWEEP, *SEEDS, *SINGLE]), "sweep")
    assert cells(BY_NAME["name"], rows) == ["sweep", "rate=0.1", "rate=0.01", "3 seeds", "…net-0002", "…net-0001"]


def test_opened_it_shows_its_rows() -> None:
    rows = shown(fold(ALL), "sweep")
    assert [(row.depth, len(row.infos)) for row in rows] == [(0, 4), (1, 2), (1, 2), (0, 3), (0, 1), (0, 1)]
    assert cells(BY_NAME["state"], rows)[:2] == ["▾ ✓ 4 completed", "  ▸ ✓ 2 completed"]
    assert [len(row.infos) for row in shown(fold(ALL), "all")] == [4, 2, 1, 1, 2, 1, 1, 3, 1, 1, 1, 1, 1]


def test_groups_are_sorted_by_their_means_and_studies_by_their_best() -> None:
    assert numbers(arrange(ALL, "accuracy", reverse=False)) == [2, [5, 4, 3], [[9, 8], [7, 6]], 1]
    assert numbers(arrange(ALL, "accuracy", reverse=True)) == [1, [[6, 7], [8, 9]], [3, 4, 5], 2]
    # Unless the user sorts by it live ones are on top.
    assert numbers(arrange(ALL, "accuracy", reverse=False, live_first=True)) == [1, 2, [5, 4, 3], [[9, 8], [7, 6]]]
    assert numbers(arrange(ALL, NEWEST, reverse=False)) == [1, [[9, 8], [7, 6]], [5, 4, 3], 2]
    assert numbers(arrange(ALL, "learning_rate", reverse=False))[-1] == [[7, 6], [9, 8]]


def test_a_group_that_has_all_runs_is_the_list() -> None:
    assert numbers(arrange(SWEEP, "accuracy", reverse=False)) == [[9, 8], [7, 6]]
    assert numbers(arrange(SEEDS, "accuracy", reverse=False)) == [[5, 4, 3]]


def test_what_waits_in_the_queue_is_on_top_with_its_group() -> None:
    waits = [replace(run(20 + place, 0.0, "queued", group="night"), place=place) for place in (2, 1)]
    rows = arrange([*ALL, *waits], "accuracy", reverse=False, live_first=True)
    assert numbers(rows)[:2] == [[21, 22], 1]


def test_rows_without_a_value_are_last() -> None:
    unknown = [replace(run(number, 0.0, "queued", "rates", learning_rate=0.5, seed=0), place=1) for number in (20, 21)]
    unknown = [replace(one, summary=Summary(steps=0)) for one in unknown]
    for reverse in (False, True):
        assert numbers(arrange([*unknown, *SEEDS, *SINGLE], "accuracy", reverse=reverse))[-1] == [20, 21]
        # One run with a value suffices for its group.
        rows = arrange([*unknown, run(22, 0.99, group="rates"), *SINGLE], "accuracy", reverse=reverse)
        assert numbers(rows)[-1 if reverse else 0] == [22, 20, 21]


def test_the_star_is_at_the_best_or_at_what_it_is_folded_in() -> None:
    rows = fold(ALL)
    assert stars(rows, shown(rows), BY_ACCURACY) == {SINGLE[0].directory: "★"}
    without = fold([*SWEEP, SEEDS[1]])
    assert stars(without, shown(without), BY_ACCURACY) == {"sweep": "★"}
    opened = shown(without, "all")
    found = stars(without, opened, BY_ACCURACY)
    assert found == {opened[1].id: "★", SWEEP[0].directory: "☆", SWEEP[2].directory: "☆"}
    assert stars(rows, shown(rows), Objective("nobody", rises=True)) == {}
    # Compared, too, a group of different runs has it that has the best.
    assert has_best(without, BY_ACCURACY) is without[0]
    fresh = refreshed(without[0], {info.directory: replace(info, status="lost") for info in SWEEP})
    assert numbers([fresh]) == numbers(without[:1])
    assert {info.status for info in runs_of(fresh)} == {"lost"}


def test_differences_to_a_baseline() -> None:
    rows, base = shown(fold(ALL)), SINGLE[0]
    accuracy = cells(against(BY_NAME["accuracy"], base), rows)
    assert accuracy == ["−0.5 ± 1.4 pp rate=0.1", "−0.5 ± 2.8 pp", "95.5 %", "−45.5 pp"]
    assert cells(against(BY_NAME["loss"], base), rows)[2:] == ["0.0450", "+0.4550"]
    assert cells(against(BY_NAME["speed"], base), rows)[2:] == ["902", "−0.1 %"]
    assert cells(against(BY_NAME["took"], base), rows)[3] == "="
    # What is no result, and what the baseline does not have, is as before.
    assert against(BY_NAME["model"], base) is BY_NAME["model"]
    assert cells(against(column_of("eval/f1"), base), rows) == ["–"] * 4
