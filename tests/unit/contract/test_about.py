"""What the user calls a run: limits, changes by several processes, damaged files."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from tests.kit import histories as h
from tests.kit.recorded import record
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import Facts
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import (
    MAX_FILE_BYTES,
    MAX_NOTE_CHARACTERS,
    About,
    AboutError,
    Change,
    change_about,
    read_about,
    split_tags,
)
from tuiapp.trainers.state.summary import run_name, summarise


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return record(tmp_path, h.RUN_ID, h.completed())


def test_changes_add_up(run: RunDir) -> None:
    assert read_about(run) == (About(), "")
    change_about(run, Change(name=" baseline ", tags=("sweep", "lr", "sweep")))
    about = change_about(run, Change(note="first\r\nsecond  \n\n", untags=("sweep",)))
    assert about == About(name="baseline", tags=("lr",), note="first\nsecond")
    assert read_about(run) == (about, "")
    assert run.about.stat().st_mode & 0o777 == 0o600
    assert change_about(run, Change(name="", note="")) == About(tags=("lr",))


def test_the_longest_are_kept(run: RunDir) -> None:
    longest = Change(name="é" * 100, tags=tuple(f"{n:032}" for n in range(20)), note='"' * MAX_NOTE_CHARACTERS)
    about = change_about(run, longest)
    assert read_about(run) == (about, "")
    assert run.about.stat().st_size < MAX_FILE_BYTES
    widest = change_about(run, Change(note="😀" * MAX_NOTE_CHARACTERS))
    assert read_about(run) == (widest, "")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (Change(name="x" * 101), "has 101 characters; at most 100 are allowed"),
        (Change(name="two\nlines"), r"The name has the control character '\\n'; remove it"),
        (Change(name="\x1b[31mred"), r"control character '\\x1b'"),
        (Change(name="\udcff"), r"control character '\\udcff'"),
        (Change(name="latest"), "'latest' cannot be a name"),
        (Change(name=h.RUN_ID), "cannot be a name: as RUN it means another run"),
        (Change(note="x" * 10_001), "The note has 10,001 characters; at most 10,000 are allowed"),
        (Change(note="a\x00b"), r"The note has the control character '\\x00'"),
        (
            Change(tags=("two words",)),
            "'two words' is not a tag; it must be 1 to 32 characters without spaces or commas",
        ),
        (Change(tags=("",)), "'' is not a tag"),
        (Change(tags=("x" * 33,)), "is not a tag"),
        (Change(tags=("\x07",)), "control character"),
        (Change(tags=tuple(map(str, range(21)))), "21 tags are too many: a run has at most 20"),
    ],
)
def test_refused(run: RunDir, change: Change, words: str) -> None:
    with pytest.raises(AboutError, match=words):
        change_about(run, change)
    assert not run.about.exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"[]", b'{"name": 1}', b'{"tags": ["a b"]}', b'{"name": "\\u001b"}', b"[" * 10_000, b" " * 200_000],
)
def test_a_damaged_file_is_ignored_with_a_word(run: RunDir, content: bytes) -> None:
    run.about.write_bytes(content)
    about, why = read_about(run)
    assert about == About()
    assert why.startswith("about.json is ignored: ")
    info = summarise(run)
    assert (info.name, info.status, info.problem) == ("", "completed", why)
    assert change_about(run, Change(name="anew")) == read_about(run)[0] == About(name="anew")


def test_a_file_that_is_no_file_is_not_waited_for(run: RunDir, tmp_path: Path) -> None:
    run.about.symlink_to(tmp_path / "elsewhere")
    assert read_about(run)[0] == About()
    change_about(run, Change(name="here"))
    assert not (tmp_path / "elsewhere").exists()
    assert read_about(run)[0].name == "here"


def _tag(directory: Path, tag: str) -> None:
    change_about(RunDir(directory), Change(tags=(tag,)))


def test_changes_made_at_once_are_all_kept(run: RunDir) -> None:
    context = multiprocessing.get_context("spawn")
    names = {f"tag{n}" for n in range(8)}
    with context.Pool(4) as pool:
        pool.starmap(_tag, [(run.path, name) for name in names])
    assert set(read_about(run)[0].tags) == names


def test_the_users_name_comes_before_the_scripts(tmp_path: Path) -> None:
    begun, *rest = h.completed()
    run = record(tmp_path, h.RUN_ID, [begun, Facts(name="by script", **h.at(1)), *rest])
    assert run_name(run) == summarise(run).name == "by script"
    change_about(run, Change(name="by hand"))
    assert run_name(run) == summarise(run).name == "by hand"


def test_tags_of_a_text() -> None:
    assert split_tags(" sweep, lr,,lr x ") == ("sweep", "lr", "x")


def test_what_cannot_be_removed_is_not_obeyed(tmp_path: Path) -> None:
    commands = tmp_path / "commands"
    (commands / "1-aaaa.stop").mkdir(parents=True)
    sidecars.send_command(commands, "stop-now")
    assert sidecars.take_commands(commands) == ["stop-now"]
    assert sidecars.take_commands(commands) == []
