"""Presets: saved, found, renamed and deleted; files that are not what a preset should be."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tuiapp.library.presets import (
    BUILTIN_DIR,
    PresetError,
    check_name,
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

CONFIG = RunConfig(epochs=77, learning_rate=1e-7, device_ids=("0", "GPU-1"), nan_policy="stop")


@pytest.fixture
def directory(home: Path) -> Path:
    assert presets_dir() == home / "config" / "tuiapp" / "presets"
    return presets_dir()


def names(*, builtin: bool = False) -> list[str]:
    return [preset.name for preset in list_presets() if preset.builtin == builtin]


def test_saved_and_loaded(directory: Path) -> None:
    path = save_preset("mine", CONFIG, "what  it\nis for")
    assert path == directory / "mine.toml"
    preset = find_preset("mine")
    assert (preset.config, preset.error, preset.builtin) == (CONFIG, None, False)
    assert preset.summary == preset.description == "what it is for"
    assert load_config("mine") == CONFIG
    assert names() == ["mine"]


def test_what_differs_from_the_defaults_is_written(directory: Path) -> None:
    text = save_preset("mine", RunConfig(epochs=3, learning_rate=0.1)).read_text()
    assert text == "schema = 1\nlearning_rate = 0.1\nepochs = 3\n"
    save_preset("mine", RunConfig(learning_rate=0.1), overwrite=True)
    assert "epochs" not in (directory / "mine.toml").read_text()


def test_private_to_the_user(directory: Path) -> None:
    before = os.umask(0)
    try:
        path = save_preset("mine", CONFIG)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for made in (directory, directory.parent, directory.parent.parent):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700


def test_one_that_exists_is_kept_unless_told_otherwise(directory: Path) -> None:
    save_preset("mine", CONFIG)
    with pytest.raises(PresetError, match="'mine' already"):
        save_preset("mine", RunConfig())
    assert load_config("mine") == CONFIG
    save_preset("mine", RunConfig(), overwrite=True)
    assert load_config("mine") == RunConfig()


def test_comments_outlive_an_overwrite(directory: Path) -> None:
    path = save_preset("mine", RunConfig())
    path.write_text('# on top\nschema = 1\ndescription = "kept"\nepochs = 3 # three\n\n# at the end\n')
    save_preset("mine", CONFIG, overwrite=True)
    text = path.read_text()
    assert all(comment in text for comment in ("# on top", "# three", "# at the end"))
    assert find_preset("mine").description == "kept"
    assert load_config("mine") == CONFIG


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "/etc/x", ".hidden", "a/b", "x" * 65, "a b", "é", "a\n", "x\x00y", "\x1b[31m", "\udcff"],
)
def test_what_is_no_name(directory: Path, name: str) -> None:
    save_preset("mine", CONFIG)
    for act in (
        lambda: check_name(name),
        lambda: save_preset(name, CONFIG),
        lambda: save_preset(name, CONFIG, overwrite=True),
        lambda: rename_preset("mine", name),
        lambda: rename_preset(name, "other"),
        lambda: delete_preset(name),
    ):
        with pytest.raises(PresetError) as caught:
            act()
        assert "is not a valid preset name: use 1 to 64 letters" in str(caught.value)
        assert str(caught.value).isprintable()
    assert os.listdir(directory) == ["mine.toml"]
    assert os.listdir(directory.parent) == ["presets"]


def test_the_built_in_ones_are_right_and_read_only(directory: Path) -> None:
    builtin = {path.stem: path.read_bytes() for path in BUILTIN_DIR.glob("*.toml")}
    first = ["quickstart", "mlp", "single-device", "gpt"]
    assert names(builtin=True) == [*first, *sorted(builtin.keys() - set(first))]
    save_preset("mine", CONFIG)
    for name in builtin:
        assert find_preset(name).error is None
        assert find_preset(name).description
        for act in (
            lambda name=name: save_preset(name, CONFIG, overwrite=True),
            lambda name=name: rename_preset(name, "other"),
            lambda name=name: rename_preset("mine", name),
            lambda name=name: delete_preset(name),
        ):
            with pytest.raises(PresetError, match=f"'{name}' is a built-in preset and read-only"):
                act()
    assert {path.stem: path.read_bytes() for path in BUILTIN_DIR.glob("*.toml")} == builtin
    assert names() == ["mine"]


def test_a_file_cannot_stand_in_for_a_built_in_one(directory: Path) -> None:
    save_preset("mine", CONFIG).rename(directory / "quickstart.toml")
    assert load_config("quickstart") != CONFIG
    # It is not passed over in silence, and the name it is listed by can be renamed or deleted.
    assert names() == ["quickstart.toml"]
    with pytest.raises(ConfigError, match="name of a built-in preset; rename it"):
        load_config("quickstart.toml")
    rename_preset("quickstart.toml", "mine")
    assert load_config("mine") == CONFIG
    (directory / "mine.toml").rename(directory / "quickstart.toml")
    delete_preset("quickstart.toml")
    assert names() == []


def test_renamed_with_its_content_untouched(directory: Path) -> None:
    save_preset("old", CONFIG).write_text("# mine\nepochs = 5 # five\n")
    assert rename_preset("old", "new") == directory / "new.toml"
    assert (directory / "new.toml").read_text() == "# mine\nepochs = 5 # five\n"
    assert names() == ["new"]


def test_the_nearest_name_is_given_for_one_that_is_not_there(directory: Path) -> None:
    for act in (
        lambda: find_preset("quickstrat"),
        lambda: load_config("quickstrat"),
        lambda: delete_preset("quickstrat"),
        lambda: rename_preset("quickstrat", "x"),
    ):
        with pytest.raises(PresetError, match=r"no preset 'quickstrat'\. Did you mean 'quickstart'\?"):
            act()
    with pytest.raises(PresetError, match=r"Available: quickstart, mlp, "):
        find_preset("zzzzzz")


@pytest.mark.nightly
def test_half_of_a_file_is_never_seen(directory: Path) -> None:
    configs = [RunConfig(epochs=1), RunConfig(epochs=1_000_000, device_ids=("x" * 2000,))]
    save_preset("mine", configs[0])
    written, enough = 0, threading.Event()

    def write() -> None:
        nonlocal written
        while not enough.is_set():
            save_preset("mine", configs[written % 2], overwrite=True)
            written += 1

    writer = threading.Thread(target=write)
    writer.start()
    seen = 0
    try:
        # Both often enough, whichever of them is the faster one.
        while seen < 100 or (written < 100 and writer.is_alive()):
            assert load_config("mine") in configs
            assert names() == ["mine"]
            seen += 1
    finally:
        enough.set()
        writer.join()
    assert written >= 100
    assert os.listdir(directory) == ["mine.toml"]


def test_a_script_is_saved_by_its_absolute_path(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = RunConfig(backend="script", script="train.py", tensorboard_dir="logs", working_directory="there")
    text = save_preset("mine", config).read_text()
    assert "epochs" not in text
    kept = load_config("mine")
    assert kept.script == str(tmp_path / "train.py")
    assert (kept.working_directory, kept.tensorboard_dir) == (str(tmp_path / "there"), str(tmp_path / "there" / "logs"))
    # What stood in the file for another kind of backend goes.
    save_preset("mine", RunConfig(epochs=3), overwrite=True)
    assert load_config("mine") == RunConfig(epochs=3)
    save_preset("mine", config, overwrite=True)
    assert load_config("mine") == kept


OTHER_CONFIG = RunConfig(epochs=77)


@pytest.fixture
def made_directory(home: Path) -> Path:
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
def test_listed_with_what_is_wrong(made_directory: Path, kind: str) -> None:
    make, words = ODD[kind]
    path = made_directory / f"{kind}.toml"
    make(path)
    save_preset("good", OTHER_CONFIG)
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
def test_overwritten_renamed_and_deleted(made_directory: Path, kind: str) -> None:
    make, _ = ODD[kind]
    make(made_directory / f"{kind}.toml")
    with pytest.raises(PresetError, match="already"):
        save_preset(kind, OTHER_CONFIG)
    if kind == "directory":
        for act in (lambda: save_preset(kind, OTHER_CONFIG, overwrite=True), lambda: delete_preset(kind)):
            with pytest.raises(PresetError, match=r"^Cannot (write|delete) /.*directory\.toml: Is a directory\.$"):
                act()
        assert os.listdir(made_directory) == ["directory.toml"]
        return
    rename_preset(kind, "other")
    assert os.listdir(made_directory) == ["other.toml"]
    save_preset("other", OTHER_CONFIG, overwrite=True)
    assert load_config("other") == OTHER_CONFIG
    delete_preset("other")
    assert os.listdir(made_directory) == []


def test_a_link_is_replaced_and_what_it_points_to_left_alone(made_directory: Path) -> None:
    make_link(made_directory / "mine.toml")
    save_preset("mine", OTHER_CONFIG, overwrite=True)
    assert not (made_directory / "mine.toml").is_symlink()
    assert (made_directory.parent / "elsewhere.toml").read_text() == "epochs = 4\n"


def test_a_directory_that_cannot_be_written(made_directory: Path) -> None:
    # /proc refuses root as well.
    made_directory.rmdir()
    made_directory.symlink_to("/proc/self/fdinfo")
    with pytest.raises(PresetError, match=r"^Cannot write "):
        save_preset("mine", OTHER_CONFIG)
