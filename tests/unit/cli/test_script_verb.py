"""`tuiapp run train.py`: the user's own script on the command line."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kit.command_line import Command, as_process
from tests.kit.leftovers import mark as mark
from tests.unit.cli.test_bad_input import check_refused
from tuiapp.library.find import find_run
from tuiapp.library.presets import load_config
from tuiapp.trainers.state.status import read_config

pytestmark = pytest.mark.usefixtures("mark")

GOOD = "import sys; print(sys.argv[1:])"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present directory, with a script."""
    directory = tmp_path / "work"
    directory.mkdir()
    (directory / "train.py").write_text(GOOD)
    monkeypatch.chdir(directory)
    return directory


REFUSED: dict[str, tuple[Any, ...]] = {
    "missing": (["trian.py"], "script: there is no file", "/trian.py'. Did you mean 'train.py'?"),
    "nowhere": (["nowhere/train.py"], "script: there is no file"),
    "directory": (["--set", "backend=script", "--set", "script=."], "is a directory; name the script in it"),
    "none": (["--set", "backend=script"], "script: is empty; it must be the path of a Python script, or module:NAME."),
    "module": (["-m", "a b"], "script: 'module:a b' is not allowed; after module: the name of a module must follow."),
    "both": (["train.py", "-m", "package.train"], "-m package.train names what to run: leave out 'train.py'."),
    "pattern": (["train.py", "--set", "output_pattern=(loss"], "output_pattern: '(loss' is not a regular expression: "),
    "no-group": (["train.py", "--set", "output_pattern=loss"], "'loss' has no named group; name each metric, as (?P<"),
    "only-step": (["train.py", "--set", r"output_pattern=(?P<step>\d+)"], "has no named group; name each metric"),
    "quoting": (["train.py", "--set", "arguments=--name 'x"], 'arguments: "--name \'x" cannot be split into words'),
    "no-equals": (["train.py", "--set", "environment=A=1 B"], "environment: 'B' sets no variable; write NAME=VALUE"),
    "variable": (["train.py", "--set", "environment=1A=2"], "environment: '1A=2' sets no variable"),
    "python": (["train.py", "--set", "python=no-such-python"], "python: 'no-such-python' is not an executable program"),
    "python-file": (["train.py", "--set", "python=./train.py"], "python: './train.py' is not an executable program"),
    "cwd": (["train.py", "--set", "working_directory=nowhere"], "working_directory: ", "does not exist."),
    "cwd-file": (["train.py", "--set", "working_directory=train.py"], "train.py' is not a directory."),
    "grace": (["train.py", "--set", "stop_grace_s=-1"], "stop_grace_s: -1.0 is not allowed", "of at least 0"),
    "builtin": (["train.py", "--set", "epochs=5"], "epochs: 5 would have no effect with backend script", "after --"),
    "arguments": (
        ["quickstart", "--", "--epochs", "5"],
        "arguments: --epochs 5 would have no effect with backend torch-ddp: it applies only to script.",
    ),
    "script-key": (
        ["--set", "script=train.py"],
        "script: train.py would have no effect with backend torch-ddp: it applies only to script.",
    ),
    "devices": (["train.py", "--set", "devices=12"], "devices: 12 is more than this machine has: "),
}


@pytest.mark.usefixtures("small_machine", "here")
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_said(tuiapp: Command, runs_dir: Path, name: str) -> None:
    words, *said = REFUSED[name]
    check_refused(tuiapp("run", *words), runs_dir, *said)


@pytest.mark.nightly
def test_arguments_after_the_dashes(here: Path, runs_dir: Path) -> None:
    done = as_process(
        "run", "train.py", "--set", "devices=1", "--set", "platform=cpu", "--json",
        "--", "--name", "two words", "--", "-x",
    )  # fmt: skip
    assert done.code == 0, done.err
    result = json.loads(done.out.splitlines()[-1])
    assert (result["status"], result["steps"]) == ("completed", 0)
    run = find_run("latest", runs_dir)
    assert "-script-train-" in run.run_id
    assert (run.rank(0) / "stdout.log").read_text() == "['--name', 'two words', '--', '-x']\n"
    config = read_config(run)
    assert (config.script, config.working_directory) == (str(here / "train.py"), str(here))
    assert shlex.split(config.arguments) == ["--name", "two words", "--", "-x"]
    shown = as_process("show", "latest").out
    assert "train.py" in shown
    assert "\nmodel" not in shown
    assert "optimizer" not in shown
    listed = json.loads(as_process("runs", "--json").out)[0]
    assert (listed["backend"], listed["model"], listed["dataset"]) == ("script", None, None)
    assert listed["script"] == str(here / "train.py")


@pytest.mark.nightly
def test_exit_codes(here: Path, runs_dir: Path) -> None:
    failing = as_process("run", "train.py", "--set", "platform=cpu", "--set", "environment=X=1", "--", "ok")
    assert failing.code == 0, failing.err
    (here / "fail.py").write_text("print('going'); raise KeyError('gone')")
    failing = as_process("run", "fail.py", "--set", "platform=cpu", "--set", "devices=1", "--json")
    assert failing.code == 1, failing.err
    assert "FAILED: rank 0 failed: KeyError: 'gone'" in failing.err
    assert 'File "' in failing.err
    run = find_run("latest", runs_dir)
    assert f"to resume: tuiapp run --resume {run.run_id}" in failing.err
    (here / "wait.py").write_text("import time\nprint('going', flush=True)\ntime.sleep(600)")
    command = [sys.executable, "-m", "tuiapp", "run", "wait.py", "--set", "platform=cpu", "--set", "devices=1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "going" in line:
            process.send_signal(signal.SIGTERM)
            break
    assert process.wait(60) == 3
    assert "STOPPED: on request" in process.stderr.read()
    process.stderr.close()


@pytest.mark.nightly
def test_a_preset_keeps_a_script(tuiapp: Command, here: Path, runs_dir: Path) -> None:
    assert tuiapp("presets", "save", "mine", "train.py", "--set", "devices=1", "--", "--epochs", "5").code == 0
    config = load_config("mine")
    assert (config.script, config.arguments) == (str(here / "train.py"), "--epochs 5")
    done = as_process("run", "mine", "--set", "platform=cpu", "--", "--epochs", "6")
    assert done.code == 0, done.err
    assert (find_run("latest", runs_dir).rank(0) / "stdout.log").read_text() == "['--epochs', '6']\n"
    # Another run like it, of the built-in kind: what was the script's goes.
    like = as_process("run", "--like", "latest", "--set", "backend=torch-ddp", "--set", "epochs=0")
    assert (like.code, like.err) == (
        2,
        "tuiapp: epochs: 0 is not allowed; it must be a whole number of at least 1 and of at most 1,000,000.\n",
    )


def test_a_scripts_arguments_without_the_dashes_before_them(here: Path, runs_dir: Path) -> None:
    done = as_process("run", "train.py", "--epochs", "5", "a b")
    assert done.code == 2
    wanted = (
        "unrecognized arguments: --epochs 5 'a b'; to pass them to the script, write them after --: … -- --epochs 5"
    )
    assert wanted in done.err
    done = as_process("run", "torchrun", "--nproc-per-node", "2", "train.py")
    assert done.code == 2
    assert "train.py; name the script alone, without torchrun: tuiapp run train.py" in done.err
    assert not runs_dir.exists()
