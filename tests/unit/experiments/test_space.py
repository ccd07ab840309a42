"""What a sweep goes through, as texts say it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuiapp.trainers.config.options import ConfigError, Value, format_value
from tuiapp.trainers.config.run_config import RunConfig, build_config, to_mapping
from tuiapp.trainers.experiments.space import all_configs, combinations, read_axis, run_name, with_values

BASE = RunConfig(platform="cpu", devices=2)
SCRIPT = RunConfig(backend="script", script="train.py", arguments="--lr {lr}", values="k=3")


def values(key: str, text: str, base: RunConfig = BASE) -> tuple[Value, ...]:
    return read_axis(to_mapping(base), key, text).values


@pytest.mark.parametrize(
    ("key", "text", "found"),
    [
        ("learning_rate", "0.1, 0.03,0.01", (0.1, 0.03, 0.01)),
        ("seed", "0..4", (0, 1, 2, 3, 4)),
        ("seed", "100000..100002", (100000, 100001, 100002)),
        ("seed", "0..2,7,7", (0, 1, 2, 7)),
        ("learning_rate", "log:1e-4..1e-1", (1e-4, 1e-3, 1e-2, 1e-1)),
        ("learning_rate", "log 1e-4..1e-1:2", (1e-4, 1e-1)),
        ("global_batch_size", "log:16..256:5", (16, 32, 64, 128, 256)),
        ("momentum", "0..0.9:4", (0.0, 0.3, 0.6, 0.9)),
        ("learning_rate", "0.5..0.5:1", (0.5,)),
        ("optimizer", "sgd, adam", ("sgd", "adam")),
        ("nesterov", "true,false", (True, False)),
        ("dataset", "digits,npz:../data..old.npz", ("digits", "npz:../data..old.npz")),
    ],
)
def test_lists_and_ranges(key: str, text: str, found: tuple[Value, ...]) -> None:
    assert values(key, text) == found


def test_values_are_told_apart_by_type_and_stay_in_their_range() -> None:
    script = RunConfig(backend="script", script="train.py")
    assert [*map(repr, values("flag", "1,true,0,false,1.0,1", script))] == ["1", "True", "0", "False", "1.0"]
    assert values("learning_rate", "0.10001..0.10003:5") == (0.10001, 0.100015, 0.10002, 0.100025, 0.10003)


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("learning_rate", "0.1,,0.2", "empty value"),
        ("learning_rate", "1e-3..1e-2", "needs a count, as 1e-3..1e-2:5"),
        ("learning_rate", "log:1e-3..5e-2", "needs a count"),
        ("learning_rate", "log:0..1", "above 0"),
        ("momentum", "log:0..0.5:3", "must begin above 0"),
        ("seed", "4..0", "smaller number first"),
        ("seed", "0..x", "is no range"),
        ("seed", "0..4:0", "has the count '0'"),
        ("seed", "0..5000", "at most 1,000"),
        ("epochs", "0.5..3", "whole numbers"),
        ("learnig_rate", "1,2", "Did you mean 'learning_rate'?"),
        ("hosts", "a,b", "cannot be swept"),
    ],
)
def test_what_is_wrong_is_said(key: str, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace("?", r"\?")):
        values(key, text)


@given(st.lists(st.floats(1e-9, 100), min_size=1, max_size=20, unique=True))
def test_what_is_written_as_a_list_is_read_back(numbers: list[float]) -> None:
    assert values("learning_rate", ", ".join(map(format_value, numbers))) == tuple(numbers)


@given(st.integers(0, 2**32 - 1), st.integers(0, 300), st.integers(1, 50))
def test_values_of_a_range_ascend_from_end_to_end(low: int, width: int, count: int) -> None:
    high = min(low + width, 2**32 - 1)
    for text in (f"{low}..{high}", f"{low}..{high}:{count}"):
        found = values("seed", text)
        assert list(found) == sorted(set(found))
        assert found[0] == low
        assert found[-1] == high or (text.endswith(":1") and len(found) == 1)


def test_a_search_draws_from_a_range_without_a_count() -> None:
    axis = read_axis(to_mapping(BASE), "learning_rate", "log 1e-5..1e-1", draws=True)
    assert (axis.values, axis.low, axis.high, axis.log, axis.whole) == ((), 1e-5, 1e-1, True, False)
    assert axis.text == "log:1e-5..1e-1"
    assert read_axis(to_mapping(BASE), "epochs", "1..5", draws=True).whole
    assert read_axis(to_mapping(BASE), "epochs", "1..5:3", draws=True).values == (1, 3, 5)


def test_every_combination() -> None:
    axes = [read_axis(to_mapping(BASE), key, text) for key, text in (("learning_rate", "0.1,0.01"), ("seed", "0..2"))]
    combined = combinations(axes)
    assert [run_name(one) for one in combined] == [
        f"learning_rate={rate} seed={seed}" for rate in (0.1, 0.01) for seed in range(3)
    ]
    assert [(one.learning_rate, one.seed) for one in all_configs(BASE, combined)] == [
        (rate, seed) for rate in (0.1, 0.01) for seed in range(3)
    ]


def test_too_many_combinations() -> None:
    axes = [read_axis(to_mapping(BASE), key, "0..99") for key in ("seed", "warmup_steps")]
    with pytest.raises(ConfigError, match="10,000 runs; at most 1,000"):
        combinations(axes)


def test_problems_of_all_combinations_come_at_once_and_once_each() -> None:
    combined = [{"global_batch_size": size, "seed": seed} for size in (48, 49, 51) for seed in range(3)]
    with pytest.raises(ConfigError) as caught:
        all_configs(BASE, combined)
    assert [problem.message.split()[0] for problem in caught.value.problems] == ["49", "51"]


def test_a_value_without_effect_is_refused() -> None:
    with pytest.raises(ConfigError, match="no effect with optimizer adam"):
        with_values(BASE, {"momentum": 0.5})
    assert with_values(BASE, {"optimizer": "sgd", "momentum": 0.5}).momentum == 0.5


def test_a_scripts_own_values() -> None:
    plain = to_mapping(SCRIPT)
    # Of a script every other key is its own, whether or not a built-in trainer has one of that name.
    axes = [
        read_axis(plain, "lr", "0.1,1e-3"),
        read_axis(plain, "optimizer", "lion,sgd"),
        read_axis(plain, "n", "1..2"),
        # Of a part of its configuration.
        read_axis(plain, "opt/lr", "0.5"),
    ]
    first = all_configs(SCRIPT, combinations(axes))[0]
    assert first.values == "k=3 lr=0.1 optimizer=lion n=1 opt/lr=0.5"
    assert build_config(to_mapping(first)) == first
    for name in ("train lr", "/lr", "opt/", "opt//lr", "a" * 41):
        with pytest.raises(ConfigError, match="no name of a value"):
            read_axis(plain, name, "1,2")


def test_another_name_of_a_key_sweeps_it_unless_the_value_is_the_script_s_own() -> None:
    assert read_axis(to_mapping(RunConfig()), "lr", "0.1,0.2").key == "learning_rate"
    assert read_axis(to_mapping(RunConfig(backend="script", script="a.py")), "lr", "0.1,0.2").key == "lr"
