"""Names of the user's own code, checked as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.placement import check_data, place
from tuiapp.trainers.config.run_config import RunConfig, cross_check
from tuiapp.trainers.config.user_code import UserCodeError, check, files_of, read_names, slug

SOURCE = """
raise RuntimeError("executed")
import os.path, sys as system
from a import b as c
one, (two, three) = 1, (2, 3)
four: int = 4
five: int
try:
    class Six: ...
except ImportError:
    def seven(): nine = 9
if True:
    async def eight(): ...
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(SOURCE)
    return tmp_path / "net.py"


def test_names_are_found_without_executing_anything(file: Path) -> None:
    names = "os", "system", "c", "one", "two", "three", "four", "Six", "seven", "eight"
    assert read_names(file) == names
    for name in names:
        assert check(f"py:{file}:{name}") == (file, name)


def test_a_changed_file_is_read_anew(file: Path) -> None:
    assert "ten" not in read_names(file)
    file.write_text("ten = 10")
    assert read_names(file) == ("ten",)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("py:{}", "is not allowed; it must be py:FILE:NAME, such as py:net.py:Net. Did you mean 'py:{}:eight'?"),
        ("py:{}:", "must be py:FILE:NAME"),
        ("py::Six", "must be py:FILE:NAME"),
        ("py:{}:6", "must be py:FILE:NAME"),
        ("py:{}:Sixe", "{} defines no Sixe; it defines os, system, c, one, two, three, four, Six, seven, eight. Did"),
        ("py:{}x:Six", "{}x cannot be read: No such file or directory. Did you mean 'net.py'?"),
        ("py:/:Six", "/ cannot be read"),
        ("py:{}\0:Six", "cannot be read: embedded null byte"),
    ],
)
def test_refusals(file: Path, value: str, words: str) -> None:
    with pytest.raises(UserCodeError) as caught:
        check(value.replace("{}", str(file)))
    assert words.replace("{}", str(file)) in str(caught.value)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (b"def f(:\n", "line 1, is not valid Python: invalid syntax"),
        (b"\xff\xfe", "is not UTF-8 text; it must be Python source text."),
        (b"x = 0\n" * 200_000, "is longer than 1024 KiB"),
        (b"(" * 10_000, "is not valid Python"),
    ],
)
def test_a_file_that_is_no_python(file: Path, source: bytes, words: str) -> None:
    file.write_bytes(source)
    with pytest.raises(UserCodeError, match=words):
        check(f"py:{file}:Six")


def test_placing_makes_the_file_absolute(file: Path, monkeypatch: pytest.MonkeyPatch, machine: Machine) -> None:
    monkeypatch.chdir(file.parent)
    placed = place(RunConfig(model="py:net.py:Six", platform="cpu"), machine)
    assert placed.model == f"py:{file}:Six"
    assert files_of(placed.model, placed.dataset) == [file]


def test_placing_refuses_a_name_that_is_missing(file: Path, machine: Machine) -> None:
    config = RunConfig(model=f"py:{file}:six", platform="cpu")
    (problem,) = check_data(config)
    assert problem.key == "model"
    with pytest.raises(ConfigError, match=r"model: .* defines no six; .* Did you mean 'Six'"):
        place(config, machine)


def test_bfloat16_is_for_frameworks_that_cast(file: Path) -> None:
    own = RunConfig(model=f"py:{file}:Six", precision="bfloat16")
    assert not cross_check(own)
    (problem,) = cross_check(RunConfig(model=f"py:{file}:Six", precision="bfloat16", backend="jax-pmap"))
    assert problem.key == "precision"
    assert not cross_check(RunConfig(precision="bfloat16", backend="jax-pmap"))


@pytest.mark.parametrize(
    ("value", "expected"), [("net", "net"), ("py:/a/b.py:My_Net", "py-my-net"), ("py:b:Öl", "py-l")]
)
def test_a_directory_gets_a_short_safe_name(value: str, expected: str) -> None:
    assert slug(value) == expected
