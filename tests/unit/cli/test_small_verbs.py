"""`tuiapp env`, `help`, `settings`, `doctor`, and the dashboard where there is no terminal."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kit import histories
from tests.kit.command_line import Command, Done, as_process
from tests.kit.isolated import isolated
from tests.kit.recorded import record
from tuiapp.library import manual
from tuiapp.trainers.config.catalog import BACKENDS, NEWEST_TESTED
from tuiapp.trainers.config.data_files import FILES, cache_dir
from tuiapp.trainers.config.settings import settings_path


@pytest.fixture
def jax_python(tmp_path: Path) -> str:
    """Named by the settings for JAX; it lacks Flax and Optax."""
    python = isolated(tmp_path / "jax", "jax", "numpy", "msgspec")
    settings_path().parent.mkdir(parents=True)
    settings_path().write_text(f'[environments]\njax = "{python}"\n')
    return python


def test_each_backends_environment(tuiapp: Command, jax_python: str) -> None:
    found = {one["backend"]: one for one in json.loads(tuiapp("env", "list", "--json").out)}
    assert list(found) == list(BACKENDS)
    assert (found["torch-ddp"]["origin"], found["torch-ddp"]["interpreter"]) == ("own", sys.executable)
    assert set(found["torch-ddp"]["versions"]) == {"torch", "numpy"}
    assert found["torch-ddp"]["unavailable"] is None
    assert (found["jax-pmap"]["origin"], found["jax-pmap"]["interpreter"]) == ("settings", jax_python)
    assert found["jax-pmap"]["unavailable"].startswith(f"flax, optax not installed in {jax_python}: ")
    assert found["keras-jax"]["origin"] == "own"


def test_as_a_table(tuiapp: Command, jax_python: str) -> None:
    head, *lines = tuiapp("env").out.splitlines()
    assert head.split() == ["BACKEND", "ENVIRONMENT", "PYTHON", "VERSIONS", "GPUS"]
    (line,) = (number for number, line in enumerate(lines) if line.startswith("jax-pmap "))
    assert f"settings: {jax_python}" in lines[line]
    assert "cannot run: flax, optax not installed" in lines[line + 1]


def test_doctor_says_where_and_warns_of_a_named_one(tuiapp: Command, jax_python: str) -> None:
    found = {one["name"]: one for one in json.loads(tuiapp("doctor", "--json").out)}
    assert found["jax-pmap"]["status"] == "warn"
    assert jax_python in found["jax-pmap"]["detail"]
    assert found["torch-ddp"]["detail"].startswith("can run: PyTorch")


def test_the_pages_are_listed(tuiapp: Command) -> None:
    done = tuiapp("help")
    assert [line.split()[0] for line in done.out.splitlines()] == list(manual.TOPICS)
    assert "tuiapp help TOPIC" in done.err


def test_a_page_is_printed_as_it_is_written(tuiapp: Command) -> None:
    done = tuiapp("help", "nodes")
    assert done.code == 0
    assert done.out == manual.read_page("nodes")


def test_words_are_searched_and_marked(tuiapp: Command) -> None:
    done = tuiapp("help", "Hang", "stacks")
    assert done.code == 0
    sections = [line for line in done.out.splitlines() if not line.startswith("    ")]
    assert "checkpoints: Stop, resume, failures › When something dies" in sections
    assert "a rank *hang*s" in done.out
    assert "*stacks*" in done.out
    # One word that is no page is searched, too.
    assert "nodes: More than one machine › When a *node* is out of reach" in tuiapp("help", "node").out


def test_words_that_no_page_has(tuiapp: Command) -> None:
    done = tuiapp("help", "nodse")
    assert (done.code, done.out, done.err) == (2, "", "tuiapp: no page has 'nodse'. Did you mean 'nodes'?\n")
    assert tuiapp("help", "supervisor", "zebra").err == "tuiapp: no page has 'supervisor' and 'zebra'.\n"


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


def test_tuiapp_into_a_pipe(home: Path) -> None:
    done = as_process()
    assert (done.code, done.out) == (2, "")
    assert done.err == "tuiapp: the dashboard needs a terminal. Without one: tuiapp run quickstart\n"
    assert list(home.iterdir()) == []


def test_attach_into_a_pipe(runs_dir: Path) -> None:
    run = record(runs_dir, histories.RUN_ID, histories.completed())
    done = as_process("attach", "latest")
    assert (done.code, done.out) == (2, "")
    assert done.err == f"tuiapp: the dashboard needs a terminal. Without one: tuiapp show {run.run_id}\n"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        *(("presets >&-", 0), ("presets 2>&-", 0), ("<&-", 2), ("<&- >&- 2>&-", 2), ("show x >&-", 2)),
        # Which can only be read.
        *(("presets 1</dev/null", 1), ("help 1</dev/null", 1)),
    ],
)
def test_streams_that_the_shell_closed(home: Path, command: str, code: int) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} -m tuiapp {command}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("command", ["presets list", "devices"])
def test_output_onto_a_full_disk(home: Path, command: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tuiapp", *command.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=150,
        )
    assert done.returncode == 1
    assert done.stderr == "tuiapp: the output could not be written: No space left on device\n"
