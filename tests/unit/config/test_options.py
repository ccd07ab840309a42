"""Reading and checking single values. The table covers every key of `OPTIONS`, so a new one is covered as well."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuiapp.trainers.config.options import ConfigError, Option, Value, format_value, nearest, shown
from tuiapp.trainers.config.run_config import OPTIONS

HUGE = 10**5000
"""Too large for a float, and for Python to write out."""


def refusal(option: Option, value: object) -> str:
    """The message with which a value is refused."""
    with pytest.raises(ConfigError) as caught:
        option.check(value)
    (problem,) = caught.value.problems
    assert problem.key == option.key
    return problem.message


def wrong_types(option: Option) -> list[object]:
    common: list[object] = [None, {}, {"a": 1}, object()]
    if option.kind != "bool":
        common += [True, False]
    return (
        common
        + {
            "str": [1, 1.5, [], ["a"], b"bytes"],
            "int": [1.0, 0.5, "1", [1], float("nan"), float("inf")],
            "float": ["1", "", [0.1], 1j],
            "bool": [0, 1, "true", 1.0, []],
            "list": ["0", 0, 1.5, [0.5], [True], [["0"]], [None]],
        }[option.kind]
    )


def wrong_values(option: Option) -> list[object]:
    """Values of the right type that are not allowed."""
    if option.choices:
        wrong: list[object] = ["", "nonsense", option.choices[0].upper() + "x", f" {option.choices[0]}"]
        for prefix in option.prefixes:
            wrong += [
                prefix,
                prefix[:-1],
                f" {prefix}x",
                prefix.upper() + "x",
                *(f"{prefix}{c}" for c in "\n\0\x1b\udcff"),
            ]
        return wrong
    wrong = []
    if option.kind == "str":
        wrong += ["a\0b", "\udcff", "x" * 8193]
    if option.kind == "float":
        wrong += [float("nan"), float("inf"), float("-inf")]
    if option.kind in ("int", "float"):
        wrong += [HUGE, -HUGE]
    beyond: float = 1 if option.kind == "int" else 1e-9
    wrong += [bound - beyond for bound in (option.minimum,) if bound is not None]
    wrong += [bound + beyond * abs(bound or 1) for bound in (option.maximum,) if bound is not None]
    wrong += [bound for bound in (option.above, option.below) if bound is not None]
    return wrong


def right_values(option: Option) -> Iterator[Value]:
    yield option.default
    yield from option.choices
    yield from (f"{prefix}{path}" for prefix in option.prefixes for path in ("a", "~/my data/ä.npz", "/x,y=z:npz:"))
    if option.kind == "str" and not option.choices:
        yield from ("a", "--text 'one two' --n=1", "/x/é.py", r"loss=(?P<loss>\S+)")
    if option.kind == "bool":
        yield from (False, True)
    if option.kind == "int":
        yield from (int(bound) for bound in (option.minimum, option.maximum) if bound is not None)
    if option.kind == "float":
        yield from (float(bound) for bound in (option.minimum, option.maximum) if bound is not None)
        yield from (bound + 1e-9 for bound in (option.above,) if bound is not None)
    if option.kind == "list":
        yield from ((), ("0",), ("0", "GPU-1"))


@pytest.mark.parametrize("key", OPTIONS)
class TestEveryKey:
    def test_says_what_it_is(self, key: str) -> None:
        option = OPTIONS[key]
        assert option.key == key
        assert option.label
        assert option.check(option.default) == option.default

    def test_refuses_other_types(self, key: str) -> None:
        option = OPTIONS[key]
        for value in wrong_types(option):
            message = refusal(option, value)
            assert shown(value) in message
            assert option.allowed() in message

    def test_refuses_what_is_not_allowed(self, key: str) -> None:
        option = OPTIONS[key]
        assert option.kind in ("list", "bool") or wrong_values(option)
        for value in wrong_values(option):
            message = refusal(option, value)
            assert option.allowed() in message
            assert "\n" not in message
            assert len(message) < 400

    def test_takes_what_is_allowed(self, key: str) -> None:
        option = OPTIONS[key]
        for value in right_values(option):
            checked = option.check(value)
            assert checked == value
            assert type(checked) is type(option.default)

    def test_is_typed_as_it_is_written_out(self, key: str) -> None:
        option = OPTIONS[key]
        for value in right_values(option):
            assert option.parse(format_value(value)) == value
            assert option.parse(f"  {format_value(value)}\t") == value

    def test_refuses_nonsense_that_is_typed(self, key: str) -> None:
        option = OPTIONS[key]
        if option.kind == "list":
            return
        texts = ("", "nonsense", "1e", "nan", "inf", "-inf", "0x10", "9" * 5000, "\udcff", "\x1b[31m")
        for text in texts if option.choices or option.kind != "str" else ("\udcff", "9" * 10_000):
            with pytest.raises(ConfigError) as caught:
                option.parse(text)
            assert len(str(caught.value)) < 400
            assert str(caught.value).isprintable()


@given(st.sampled_from(list(OPTIONS)), st.text() | st.from_regex(r"[+-]?[0-9][0-9.,_eE+-]*", fullmatch=True))
@settings(max_examples=300)
def test_whatever_is_typed_is_taken_or_refused_in_a_sentence(key: str, text: str) -> None:
    option = OPTIONS[key]
    try:
        value = option.parse(text)
    except ConfigError as error:
        refused = str(error)
    else:
        assert option.check(value) == value
        assert option.parse(format_value(value)) == value
        return
    assert option.allowed() in refused
    assert refused.isprintable()
    assert len(refused) < 400


def test_whole_numbers_may_be_typed_with_separators() -> None:
    assert OPTIONS["epochs"].parse("1,000") == 1000
    assert OPTIONS["epochs"].parse("1_000") == 1000
    assert OPTIONS["max_steps"].parse("+12,345,678") == 12_345_678


@pytest.mark.parametrize("text", ["١٢", "1_0", "1,0", "1,00,000", "１２", "1__000", "+-1", "1e3", "1.", "²"])
def test_other_whole_numbers_are_refused(text: str) -> None:
    assert f"{text!r} is not allowed; it must be a whole number" in str(_parse_refused("epochs", text))


@pytest.mark.parametrize("text", ["٠.١", "0.0_1", "0,1", "０.1", "1e", "e1", ".", "infinity", "1_0"])
def test_other_numbers_are_refused(text: str) -> None:
    assert f"{text!r} is not allowed; it must be a number" in str(_parse_refused("learning_rate", text))


@pytest.mark.parametrize("text", ["0.01", ".01", "1e-2", "+1.E-2", "10E-3"])
def test_a_number_may_be_typed_in_many_ways(text: str) -> None:
    assert OPTIONS["learning_rate"].parse(text) == 0.01


def _parse_refused(key: str, text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        OPTIONS[key].parse(text)
    return caught.value


def test_a_whole_number_will_do_where_a_number_is_wanted() -> None:
    value = OPTIONS["learning_rate"].check(1)
    assert value == 1.0
    assert isinstance(value, float)


@pytest.mark.parametrize("text", ["0,1", " 0 , 1 ", "[0, 1]", "0,1,", ",0,,1"])
def test_lists_are_typed_with_commas(text: str) -> None:
    assert OPTIONS["device_ids"].parse(text) == ("0", "1")


def test_indices_in_a_list_may_be_numbers() -> None:
    assert OPTIONS["device_ids"].check([0, "GPU-1"]) == ("0", "GPU-1")


def test_the_nearest_choice_is_named() -> None:
    assert refusal(OPTIONS["optimizer"], "adamm").endswith(" Did you mean 'adam'?")
    assert "Did you mean" not in refusal(OPTIONS["optimizer"], "zzz")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("optimizer", "one of sgd, adam, adamw, adadelta"),
        ("epochs", "a whole number of at least 1 and of at most 1,000,000"),
        ("learning_rate", "a number above 0 and of at most 100"),
        ("momentum", "a number of at least 0 and below 1"),
        ("device_ids", "a list of strings"),
        ("compile", "one of false, true"),
    ],
)
def test_what_is_allowed_is_said_in_words(key: str, words: str) -> None:
    assert OPTIONS[key].allowed() == words


def test_a_value_is_quoted_on_one_short_line() -> None:
    for value in ("x" * 10_000, "a\nb\x1b[31m", HUGE, [HUGE], ["x"] * 1000):
        assert len(shown(value)) <= 60
        assert shown(value).isprintable()


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("npz", "Did you mean 'npz:'?"),
        ("nzp:/data/faces.npz", "Did you mean 'npz:'?"),
        ("nzp:/data/faces", "Did you mean 'npz:'?"),
        ("faces.npz", "Did you mean 'npz:faces.npz'?"),
        ("minst", "Did you mean 'mnist'?"),
        ("cifar-10", "Did you mean 'cifar10'?"),
    ],
)
def test_what_is_meant_is_guessed_of_a_file_too(value: str, hint: str) -> None:
    message = refusal(OPTIONS["dataset"], value)
    assert "it must be one of digits, mnist, fashion-mnist, cifar10, " in message
    assert "npz:PATH." in message
    assert message.endswith(hint)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("learnig_rate", "learning_rate"), ("Epoch", "epochs"), ("batchsize", "batch_size"), ("patiance", "patience"),
        ("decay", "weight_decay"), ("preci", "precision"), ("early_stoping", "early_stop"), ("sede", "seed"),
        ("drop_last", ""), ("ssh_port", ""), ("num_workers", ""), ("lr_decay", ""), ("gamma", ""), ("dropout", ""),
        ("val_split", ""), ("last", ""), ("timeout", ""), ("", ""),
    ],
)  # fmt: skip
def test_the_nearest_key_is_near_or_none(word: str, meant: str) -> None:
    names = [name for option in OPTIONS.values() for name in (option.key, *option.aliases)]
    assert nearest(word, names) == meant


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("gpu", ("auto", "cuda", "cpu"), ""), ("sdg", ("sgd", "adam"), "sgd"), ("adm", ("sgd", "adam"), "adam"),
        ("ddp", ("torch-ddp", "jax-pmap"), "torch-ddp"), ("jax", ("torch-ddp", "jax-pmap"), "jax-pmap"),
        ("loss", ("test/accuracy", "eval/loss"), "eval/loss"), ("port", ("opt", "optim"), ""),
    ],
)  # fmt: skip
def test_what_is_meant_is_near_enough(word: str, known: tuple[str, ...], meant: str) -> None:
    assert nearest(word, known) == meant
