"""`tuiapp doctor`: its findings, and the exit code that follows from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kit.command_line import Command, Done, as_process
from tuiapp.trainers.config.catalog import BACKENDS, NEWEST_TESTED
from tuiapp.trainers.config.data_files import FILES, cache_dir
from tuiapp.trainers.config.settings import settings_path


def findings(done: Done) -> dict[str, dict[str, Any]]:
    """Name → finding; checks that the exit code is that of the worst one."""
    found = json.loads(done.out)
    assert all(set(finding) == {"name", "status", "detail"} for finding in found)
    statuses = {finding["status"] for finding in found}
    assert statuses <= {"pass", "info", "warn", "fail"}
    assert done.code == (2 if "fail" in statuses else 1 if "warn" in statuses else 0)
    return {finding["name"]: finding for finding in found}


def test_findings_as_json(home: Path) -> None:
    done = as_process("doctor", "--json")
    assert done.err == ""
    found = findings(done)
    assert {"tuiapp", "versions", "CPU", "runs", "presets", "disk", "/dev/shm", *BACKENDS} <= set(found)
    assert found["torch-ddp"]["status"] == "pass"
    assert found["runs"] == {"name": "runs", "status": "pass", "detail": f"{home}/data/tuiapp/runs (will be created)"}
    assert list(home.iterdir()) == []


def test_findings_for_people(tuiapp: Command) -> None:
    done = tuiapp("doctor")
    assert all(line.startswith(("ok    ", "–     ", "warn  ", "FAIL  ")) for line in done.out.splitlines())
    assert done.code == (2 if "\nFAIL" in done.out else 1 if "\nwarn" in done.out else 0)


def test_a_framework_that_is_newer_than_tested_is_named_and_used(
    tuiapp: Command, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = {"msgspec": "0.22.0", "numpy": "2.5.5", "torch": "2.16.0+cu130"}
    answer = json.dumps({"version": "3.13.0", "searched": [], "packages": packages})
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho '{answer}'\n")
    python.chmod(0o700)
    settings_path().parent.mkdir(parents=True, exist_ok=True)
    settings_path().write_text(f'[environments]\ntorch = "{python}"\n')
    done = tuiapp("doctor", "--json")
    found = findings(done)
    assert found["torch"]["status"] == "info"
    assert found["torch"]["detail"] == "2.16.0+cu130 is newer than 2.15, the newest that is tested: runs go on with it"
    assert found["torch-ddp"]["status"] == "pass"
    assert "numpy" not in found
    # A further digit of a tested version is not newer.
    monkeypatch.setitem(NEWEST_TESTED, "torch", (2, 16))
    assert "torch" not in findings(tuiapp("doctor", "--json"))


def test_where_the_data_sets_are(tuiapp: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = findings(tuiapp("doctor", "--json"))
    assert found["mnist"]["status"] == found["cifar10"]["status"] == "info"
    assert "the first run that uses it downloads 162 MiB" in found["cifar10"]["detail"]
    (cifar,) = FILES["cifar10"]
    cache_dir("cifar10").mkdir(parents=True)
    (cache_dir("cifar10") / cifar.name).touch()
    found = findings(tuiapp("doctor", "--json"))
    assert found["cifar10"] == {"name": "cifar10", "status": "pass", "detail": f"in {cache_dir('cifar10')}"}
    monkeypatch.setenv("TUIAPP_DATA_DIR", str(tmp_path / "none"))
    assert findings(tuiapp("doctor", "--json"))["data"]["status"] == "warn"
