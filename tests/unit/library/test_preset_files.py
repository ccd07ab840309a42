"""Files that are not what a preset should be: shown with what is wrong, never followed or waited for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tuiapp.library.presets import (
    PresetError,
    delete_preset,
    find_preset,
    list_presets,
    load_config,
    presets_dir,
    rename_preset,
    save_preset,
)
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.run_config import RunConfig

CONFIG = RunConfig(epochs=77)


@pytest.fixture
def directory(home: Path) -> Path:
    presets_dir().mkdir(parents=True)
    return presets_dir()


def make_long(path: Path) -> None:
    path.write_bytes(b"# long\n" * 1_500_000)


def make_link(path: Path) -> None:
    target = path.parent.parent / "elsewhere.toml"
    target.write_text("epochs = 4\n")
    path.symlink_to(target)


ODD: dict[str, tuple[Callable[[Path], object], str]] = {
    "no-toml": (lambda path: path.write_text("epochs: 4"), "is not valid TOML: "),
    "binary": (lambda path: path.write_bytes(os.urandom(64) + b"\xff"), "is not UTF-8 text"),
    "deep": (lambda path: path.write_text("epochs = " + "[" * 50_000), "nested too deeply"),
    "long": (make_long, "is longer than 64 KiB"),
    "link": (make_link, "is a symbolic link; replace it with the file itself"),
    "loop": (lambda path: path.symlink_to(path), "is a symbolic link"),
    "dangling": (lambda path: path.symlink_to("/nowhere/at/all"), "is a symbolic link"),
    "fifo": (os.mkfifo, "not a regular file"),
    "directory": (lambda path: path.mkdir(), "not a regular file"),
    "newer": (lambda path: path.write_text("schema = 2"), "schema: 2 is not supported: this version"),
    "unknown-key": (lambda path: path.write_text("epoch = 2"), "epoch: unknown key. Did you mean 'epochs'?"),
    "wrong-value": (lambda path: path.write_text("epochs = true"), "epochs: True is not allowed"),
    "description": (lambda path: path.write_text("description = 5"), "description: 5 must be a string"),
}


@pytest.mark.parametrize("kind", ODD)
def test_listed_with_what_is_wrong(directory: Path, kind: str) -> None:
    make, words = ODD[kind]
    path = directory / f"{kind}.toml"
    make(path)
    save_preset("good", CONFIG)
    assert sorted(preset.name for preset in list_presets() if not preset.builtin) == sorted(["good", kind])
    preset = find_preset(kind)
    assert preset.config is None
    assert words in str(preset.error)
    assert str(path) in str(preset.error)
    assert preset.summary in str(preset.error)
    assert len(str(preset.error)) < 1000
    with pytest.raises(ConfigError):
        load_config(kind)


@pytest.mark.parametrize("kind", ODD)
def test_overwritten_renamed_and_deleted(directory: Path, kind: str) -> None:
    make, _ = ODD[kind]
    make(directory / f"{kind}.toml")
    with pytest.raises(PresetError, match="already"):
        save_preset(kind, CONFIG)
    if kind == "directory":
        for act in (lambda: save_preset(kind, CONFIG, overwrite=True), lambda: delete_preset(kind)):
            with pytest.raises(PresetError, match=r"^Cannot (write|delete) /.*directory\.toml: Is a directory\.$"):
                act()
        assert os.listdir(directory) == ["directory.toml"]
        return
    rename_preset(kind, "other")
    assert os.listdir(directory) == ["other.toml"]
    save_preset("other", CONFIG, overwrite=True)
    assert load_config("other") == CONFIG
    delete_preset("other")
    assert os.listdir(directory) == []


def test_a_link_is_replaced_and_what_it_points_to_left_alone(directory: Path) -> None:
    make_link(directory / "mine.toml")
    save_preset("mine", CONFIG, overwrite=True)
    assert not (directory / "mine.toml").is_symlink()
    assert (directory.parent / "elsewhere.toml").read_text() == "epochs = 4\n"


def test_a_directory_that_cannot_be_written(directory: Path) -> None:
    # /proc refuses root as well.
    directory.rmdir()
    directory.symlink_to("/proc/self/fdinfo")
    with pytest.raises(PresetError, match=r"^Cannot write "):
        save_preset("mine", CONFIG)
