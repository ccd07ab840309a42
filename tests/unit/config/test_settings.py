"""The settings file: what is read of it, what is said of it, and how one setting is written."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tuiapp.trainers.config.settings import (
    Settings,
    host_of,
    is_open_to_others,
    read_settings,
    save_setting,
    settings_path,
)


def write(text: str | bytes) -> Path:
    path = settings_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_there_need_be_none() -> None:
    assert read_settings() == (Settings(), [])


def test_all_keys_are_read() -> None:
    write(
        'theme = "nord"\nunicode = "off"\nbell = false\nnotification = "osc777"\n'
        'command = ["notify", "me"]\n'
        'webhook = "https://hooks.example/secret"\n[keys]\n"configure.launch" = "f9,ctrl+g"\n'
    )
    settings, problems = read_settings()
    assert problems == []
    assert settings == Settings(
        theme="nord",
        unicode="off",
        bell=False,
        notification="osc777",
        command=("notify", "me"),
        webhook="https://hooks.example/secret",
        keys={"configure.launch": "f9,ctrl+g"},
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("bell = 3", "bell: 3 is not allowed; it must be one of false, true."),
        ('unicode = "perhaps"', "unicode: 'perhaps' is not allowed; it must be one of auto, on, off."),
        ('notification = "osc99"', "Did you mean 'osc9'?"),
        ('command = "notify me"', "command: 'notify me' is not allowed; it must be a list of strings."),
        ('command = ["a\\u0000b"]', "It has characters that cannot be shown."),
        ('themes = "nord"', "'themes': unknown setting. Did you mean 'theme'?"),
        ('webhook = "ftp://secret.example/x"', "webhook: is not a web address; it must begin with https:// or http://"),
        ('webhook = "https://"', "webhook: is not a web address"),
        ('webhook = "http://[bad"', "webhook: is not a web address"),
        ("keys = 3", "keys: 3 is not allowed; it must be a table"),
        ("[keys]\nlaunch = 3", "keys.launch: 3 is not allowed; it must be keys, comma-separated"),
        ('[keys]\nlaunch = "f9,"', "keys.launch: 'f9,' is not allowed"),
    ],
)
def test_what_is_wrong_is_said_and_the_rest_is_used(line: str, said: str) -> None:
    write(f'theme = "nord"\n{line}\n')
    settings, problems = read_settings()
    assert said in "\n".join(map(str, problems))
    assert settings == Settings(theme="nord")


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"theme =", "is not valid TOML"), (b"\xff\xfe", "not UTF-8"), (b"#" * 100_000, "longer than 64 KiB")],
)
def test_a_file_that_cannot_be_read(data: bytes, said: str) -> None:
    write(data)
    settings, problems = read_settings()
    assert settings == Settings()
    assert said in str(problems[0])


def test_a_directory_or_a_fifo_in_its_place_holds_nothing_up() -> None:
    settings_path().mkdir(parents=True)
    assert read_settings()[1]
    settings_path().rmdir()
    os.mkfifo(settings_path())
    assert read_settings()[1]


def test_one_setting_is_written_and_the_rest_stays(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.toml"
    real.write_text('# mine\nbell = false # quiet\n[keys]\n"app.quit" = "f10"\n')
    settings_path().parent.mkdir(parents=True)
    settings_path().symlink_to(real)
    save_setting("theme", "gruvbox")
    text = real.read_text()
    assert "# mine" in text
    assert "# quiet" in text
    assert settings_path().is_symlink()
    settings, problems = read_settings()
    assert problems == []
    assert (settings.theme, settings.bell, settings.keys) == ("gruvbox", False, {"app.quit": "f10"})


def test_a_setting_makes_the_file_for_its_owner_alone() -> None:
    before = os.umask(0)
    try:
        path = save_setting("theme", "nord")
    finally:
        os.umask(before)
    assert {stat.S_IMODE(made.stat().st_mode) for made in (path.parent, path.parent.parent)} == {0o700}
    assert not is_open_to_others(path)
    assert path.stat().st_mode & 0o777 == 0o600
    write("theme =")
    with pytest.raises(ValueError, match="not valid TOML"):
        save_setting("theme", "dracula")
    assert path.read_text() == "theme ="


OPENED: dict[str, Callable[[Path], object]] = {
    "the file": lambda path: path.chmod(0o666),
    "the file to its group": lambda path: path.chmod(0o620),
    "its directory": lambda path: path.parent.chmod(0o777),
    "the directory of the link to it": lambda path: _link(path).parent.chmod(0o777),
    "the directory that the link leads to": lambda path: _link(path).resolve().parent.chmod(0o777),
    "its owner": lambda path: os.chown(path, 65_534, -1),
}
"""What somebody else may write then."""


def _link(path: Path) -> Path:
    real = path.parent.parent / "dotfiles" / "mine.toml"
    real.parent.mkdir(mode=0o700)
    path.rename(real)
    path.symlink_to(real)
    return path


@pytest.mark.parametrize("what", OPENED)
def test_what_others_may_write_names_no_command_and_no_webhook(what: str) -> None:
    if what == "its owner" and os.geteuid() != 0:
        pytest.skip("only root gives files away")
    path = write('theme = "nord"\ncommand = ["/bin/planted"]\nwebhook = "https://planted.example"\n')
    path.chmod(0o600)
    path.parent.chmod(0o700)
    assert read_settings()[0].command == ("/bin/planted",)
    OPENED[what](path)
    settings, problems = read_settings()
    assert settings == Settings(theme="nord")
    assert [problem.key for problem in problems] == ["command", "webhook"]
    words = "belongs to another user" if what == "its owner" else "chmod go-w"
    assert all(words in problem.message for problem in problems)


def test_what_others_may_write_and_names_neither_is_used() -> None:
    write("bell = false").chmod(0o666)
    assert read_settings() == (Settings(bell=False), [])


def test_of_an_address_only_the_host_is_shown() -> None:
    assert host_of("https://user:pw@hooks.example:8443/secret?token=1") == "https://hooks.example"
