from __future__ import annotations

import json

from tests.kit.command_line import Command
from tuiapp.trainers.config.settings import settings_path


def test_settings_are_shown_without_the_secret(tuiapp: Command) -> None:
    settings_path().parent.mkdir(parents=True)
    settings_path().write_text('webhook = "https://hooks.example/secret"\nbell = 3\n')
    done = tuiapp("settings", "show", "--json")
    assert done.code == 2
    assert json.loads(done.out)["webhook"] == "https://hooks.example/…"
    assert "bell: 3 is not allowed" in done.err
    assert "secret" not in done.out + done.err


def test_path_and_keys(tuiapp: Command) -> None:
    assert tuiapp("settings", "path").out.strip() == str(settings_path())
    named = {one["name"]: one for one in json.loads(tuiapp("settings", "keys", "--json").out)}
    assert named["configure.launch"] == {"name": "configure.launch", "keys": "ctrl+r", "does": "Launch"}


def test_doctor_warns_of_what_is_wrong(tuiapp: Command) -> None:
    settings_path().parent.mkdir(parents=True)
    settings_path().write_text('webhook = "https://hooks.example/secret"\ncommand = ["/nowhere"]\n')
    settings_path().chmod(0o644)
    told = [one["detail"] for one in json.loads(tuiapp("doctor", "--json").out) if one["name"] == "settings"]
    assert any("chmod 600" in detail for detail in told)
    assert any("'/nowhere' is not found" in detail for detail in told)
