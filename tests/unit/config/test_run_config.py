"""Whole configurations: their keys, how values go together, their files, and what follows from them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from tuiapp.trainers.config.catalog import takes
from tuiapp.trainers.config.datasets import DATASETS
from tuiapp.trainers.config.options import ConfigError, Option, Problem
from tuiapp.trainers.config.plan import make_plan, read_plan, write_plan
from tuiapp.trainers.config.relevance import drop_inapplicable
from tuiapp.trainers.config.run_config import (
    OPTIONS,
    SCHEMA,
    RunConfig,
    build_config,
    changed_keys,
    cross_check,
    get_option,
    parse_toml,
    to_mapping,
    to_toml,
    to_toml_values,
)


def problems(**values: object) -> dict[str, str]:
    """Key → message of everything that is wrong."""
    with pytest.raises(ConfigError) as caught:
        build_config(values)
    return {problem.key: problem.message for problem in caught.value.problems}


def random_value(option: Option, dice: random.Random) -> object:
    if option.choices:
        return dice.choice(option.choices)
    if option.kind == "list":
        return []
    if option.kind == "str":
        return dice.choice(["", "a.py", 'A="1 2"'])
    if option.kind == "bool":
        return dice.random() < 0.5
    low = option.minimum if option.minimum is not None else option.above
    high = option.maximum if option.maximum is not None else option.below
    assert low is not None
    assert high is not None
    if option.kind == "int":
        return dice.choice([int(low), int(high), dice.randint(int(low), int(high))])
    return dice.choice([high / 2, 1e-5, low + (high - low) * dice.random() * 0.999 + 1e-300])


def random_config(dice: random.Random) -> RunConfig:
    """A configuration of which every key is drawn, within what goes together."""
    while True:
        values = {key: random_value(option, dice) for key, option in OPTIONS.items() if dice.random() < 0.8}
        devices = dice.randint(0, 8)
        values["devices"] = devices
        values["global_batch_size"] = max(1, devices) * dice.randint(1, 100)
        values["per_device_batch_size"] = dice.choice([0, dice.randint(1, 100)])
        if devices and dice.random() < 0.5:
            values["device_ids"] = [f'GPU-{index}-"quoted" \\ é' for index in range(devices)]
        try:
            return drop_inapplicable(build_config(values))
        except ConfigError:
            continue


@pytest.mark.parametrize("seed", range(50))
def test_a_file_gives_back_the_configuration(seed: int) -> None:
    config = random_config(random.Random(seed))
    text = to_toml(config)
    assert parse_toml(text, "file") == (config, {})
    assert build_config(to_mapping(config)) == config
    assert build_config(to_toml_values(config)) == config


def test_a_file_says_everything() -> None:
    lines = to_toml(RunConfig()).splitlines()
    assert lines[0] == f"schema = {SCHEMA}"
    assert [line.partition(" = ")[0] for line in lines[1:]] == [key for key in OPTIONS if takes("torch-ddp", key)]
    lines = to_toml(RunConfig(backend="script", script="train.py")).splitlines()
    assert [line.partition(" = ")[0] for line in lines[1:]] == [key for key in OPTIONS if takes("script", key)]
    assert not any(line.startswith(("model", "epochs")) for line in lines)


def test_the_defaults_go_together() -> None:
    assert cross_check(RunConfig()) == []
    assert build_config({}) == RunConfig()


@pytest.mark.parametrize("key", OPTIONS)
def test_a_wrong_value_is_named_with_the_file_and_the_key(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_toml(f"{key} = 2020-02-02", "some/file.toml")
    assert str(caught.value).startswith(f"some/file.toml: {key}: datetime.date(2020, 2, 2) is not allowed; ")
    assert OPTIONS[key].allowed() in str(caught.value)


def test_every_problem_is_found_at_once() -> None:
    found = problems(epochs=0, learning_rate=-1, optimzer="adam", seed="x")
    assert list(found) == ["epochs", "learning_rate", "optimzer", "seed"]


def test_an_unknown_key_gets_the_nearest_one_or_all() -> None:
    assert problems(learnig_rate=1) == {"learnig_rate": "unknown key. Did you mean 'learning_rate'?"}
    assert ", ".join(OPTIONS) in problems(zzzz=1)["zzzz"]
    with pytest.raises(ConfigError):
        get_option("schema")


@pytest.mark.parametrize(
    ("name", "key"),
    [("lr", "learning_rate"), ("bs", "global_batch_size"), ("wd", "weight_decay"), ("num_train_epochs", "epochs")],
)
def test_what_other_programs_call_the_same_is_understood(name: str, key: str) -> None:
    assert getattr(build_config({name: 2}), key) == 2
    assert get_option(name).key == key
    assert problems(**{name: 1, key: 2}) == {name: f"is another name of {key}: give one of them."}
    assert problems(**{key: 2, name: 1}) == {name: f"is another name of {key}: give one of them."}
    assert list(problems(**{name: "x"})) == [key]


@pytest.mark.parametrize(
    ("name", "key"),
    [("gpus", "devices"), ("per_device_train_batch_size", "per_device_batch_size"), ("lr_scheduler_type", "schedule")],
)
def test_what_other_programs_call_something_near_gets_the_key_and_its_meaning(name: str, key: str) -> None:
    assert problems(**{name: 1}) == {name: f"unknown key. Use {key!r}: {OPTIONS[key].help}."}


@pytest.mark.parametrize(
    ("values", "key", "words"),
    [
        ({"global_batch_size": 1438}, "global_batch_size", "1,438 is more than the 1,437 training examples of digits"),
        ({"global_batch_size": 10, "devices": 4}, "global_batch_size", "8 or 12 can"),
        ({"global_batch_size": 3, "devices": 4}, "global_batch_size", "over 4 devices; 4 can"),
        ({"device_ids": ["0", "1"], "devices": 3}, "devices", "3 does not fit the 2 GPUs in device_ids"),
        ({"device_ids": ["1", "0", "1"]}, "device_ids", "names a GPU twice"),
        ({"device_ids": ["0"], "platform": "cpu"}, "device_ids", "platform is cpu"),
        ({"precision": "tf32", "platform": "cpu"}, "precision", "tf32 is a GPU format"),
        ({"normalize": "mean"}, "normalize", "'mean' is neither 'data' nor means / deviations above 0"),
        ({"normalize": "0.5 / 0"}, "normalize", "deviations above 0, a number for each channel or one for all"),
        ({"normalize": "0.1 0.2 0.3 / 1 2"}, "normalize", "as '0.49 0.48 0.45 / 0.25 0.24 0.26'"),
        (
            {"model": "gpt-small", "dataset": "shakespeare", "augment": "flip"},
            "augment",
            "flip changes images; shakespeare is text: use off",
        ),
        ({"augment": "cutmix"}, "augment", "one of off, flip, crop-flip, mixup"),
        ({"label_smoothing": 1.0}, "label_smoothing", "a number of at least 0 and below 1"),
        (
            {"learning_rate_scaling": "sqrt"},
            "learning_rate_scaling",
            "no effect unless learning_rate_for names a batch",
        ),
    ],
)
def test_values_that_do_not_go_together(values: dict[str, object], key: str, words: str) -> None:
    found = problems(**values)
    assert list(found) == [key]
    assert words in found[key]


def test_further_checks_come_first_and_say_enough() -> None:
    def no_machine(config: RunConfig) -> list[Problem]:
        return [Problem("devices", f"{config.devices} is too many here")]

    with pytest.raises(ConfigError) as caught:
        build_config({"devices": 5}, checks=[no_machine])
    assert [problem.message for problem in caught.value.problems] == ["5 is too many here"]


@pytest.mark.parametrize("schema", ["2", "0", "-1", '"1"', "true", "1.0", "[]"])
def test_another_schema_is_refused(schema: str) -> None:
    with pytest.raises(ConfigError, match=rf"^f: schema: .* is not supported: .* reads schema {SCHEMA}\.$"):
        parse_toml(f"schema = {schema}\nkey_of_the_future = 1", "f")


def test_a_file_without_schema_is_of_this_one() -> None:
    assert parse_toml("epochs = 3", "f")[0] == RunConfig(epochs=3)


NO_CONFIGURATION = {
    "no-value": "epochs",
    "no-value-after-all": "epochs = ",
    "twice": "epochs = 1\nepochs = 2",
    "nul": "\x00",
    "escape": "epochs = '\x1b'",
    "deep-lists": "epochs = " + "[" * 50_000,
    "deep-tables": "epochs = " + "{a=" * 10_000,
    "long-number": "epochs = " + "9" * 5000,
    "long-hex-number": "epochs = 0x" + "f" * 50_000,
    "table": "[epochs]",
    "list-of-tables": "[[epochs]]",
    "dotted": "a" + ".a" * 5000 + " = 1",
}


@pytest.mark.parametrize("text", NO_CONFIGURATION.values(), ids=NO_CONFIGURATION)
def test_what_is_no_configuration_is_refused_in_words(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^some/file: ") as caught:
        parse_toml(text, "some/file")
    assert len(str(caught.value)) < 800


def test_other_keys_that_a_file_may_have_are_given_back() -> None:
    text = 'description = "d"\nepochs = 2'
    assert parse_toml(text, "f", also=frozenset({"description", "more"})) == (RunConfig(epochs=2), {"description": "d"})
    with pytest.raises(ConfigError, match="description"):
        parse_toml(text, "f")


@pytest.mark.parametrize(
    "text",
    [
        'model = "mlp"\ndevice_ids = ["a", "b"]\n\nepochs = 3\n',
        "# as in the paper\nepochs = 3  # of it\n",
        'slurm = """\nepochs = 3\n"""\nseed = 1\n',
        "hosts = [\n  'a',\n  'b',\n]\n",
        "epochs = 3\r\nseed = 1\r\n",
        "epochs = 3\nepochs = 3\n",
        "[more]\nepochs = 3\n",
        "[[more]]\nepochs = 3\n",
        "more.epochs = 3\nmore.seed = 1\n",
        "epochs = 3\nseed 1\n",
    ],
)
def test_a_file_read_by_its_lines_is_as_a_whole_one(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> object:
        try:
            return parse_toml(text, "f", also=frozenset({"more"}))
        except ConfigError as error:
            return str(error)

    by_lines = [read(), read()]
    monkeypatch.setattr("tuiapp.trainers.config.run_config._read_lines", lambda text: None)
    assert by_lines == [read()] * 2


def test_what_was_changed() -> None:
    assert changed_keys(RunConfig(epochs=3, device_ids=("0",)), RunConfig()) == {"device_ids": ("0",), "epochs": 3}


def test_the_number_of_steps() -> None:
    per_epoch = DATASETS["digits"].train_examples // 48
    assert make_plan(RunConfig(epochs=3)).steps_per_epoch == per_epoch
    assert make_plan(RunConfig(epochs=3)).total_steps == 3 * per_epoch
    assert make_plan(RunConfig(epochs=3, max_steps=50)).total_steps == 50
    assert make_plan(RunConfig(epochs=1, max_steps=5000)).total_steps == per_epoch
    limited = make_plan(RunConfig(epochs=3, max_steps=per_epoch + 5))
    assert [list(limited.epochs_after(step)) for step in (0, per_epoch, per_epoch + 4)] == [[1, 2], [2], [2]]
    assert not limited.epochs_after(per_epoch + 5)
    assert not make_plan(RunConfig(epochs=3)).epochs_after(3 * per_epoch)


PLAN = make_plan(RunConfig(platform="cpu", devices=2, global_batch_size=100, epochs=3, max_steps=20))


"""14 steps an epoch; the run ends within the second."""


def test_where_an_epoch_ends_and_what_is_due_there() -> None:
    assert [step for step in range(1, 21) if PLAN.ends_epoch(step)] == [14, 20]
    assert [step for step in range(1, 21) if PLAN.evaluates_after(step)] == [14, 20]
    assert [step for step in range(1, 21) if PLAN.saves_after(step)] == [20]
    assert [step for step in range(1, 21) if PLAN.saves_after(step, due=True)] == [14, 20]
    assert (PLAN.batch_of(1), PLAN.left_out, PLAN.processes) == (50, 37, 2)


@pytest.mark.parametrize(
    ("key", "value", "saved"),
    [("checkpoint_every", 1, [14, 20]), ("checkpoint_every", 0, []), ("early_stop", 2, [14, 20])],
)
def test_what_is_asked_for_is_saved_without_delay(key: str, value: int, saved: list[int]) -> None:
    plan = make_plan(replace(PLAN.config, **{key: value}))
    assert [step for step in range(1, 21) if plan.saves_after(step)] == saved


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write_plan(path, PLAN)
    assert read_plan(path) == PLAN
    path.write_text(path.read_text()[:-40])
    with pytest.raises(ValueError, match=r"plan\.json: .*truncated"):
        read_plan(path)
