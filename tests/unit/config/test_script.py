"""Configurations of the user's own script: texts, files, the command, and files beside it that hide what it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tuiapp.trainers.config.machine import Gpu, Machine
from tuiapp.trainers.config.memory import check_data_fits
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.placement import place
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.relevance import check_file, inapplicable_keys
from tuiapp.trainers.config.run_config import RunConfig, build_config, to_mapping
from tuiapp.trainers.config.script import (
    USED_BY,
    check_hidden,
    command,
    data_name,
    read_code,
    short_command,
    subject,
    variables,
)
from tuiapp.trainers.config.script_syntax import compile_pattern, program_name, read_environment, read_values
from tuiapp.trainers.contract.rundir import RUN_ID, make_run_dir

GPUS = tuple(Gpu(index=index, uuid=f"GPU-{index}", name="H200") for index in range(5))


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print(1)\n")
    return RunConfig(backend="script", script="train.py")


def test_placing_fixes_what_depends_on_where_it_is_launched(
    script: RunConfig, machine: Machine, tmp_path: Path
) -> None:
    config = build_config({**to_mapping(script), "tensorboard_dir": "logs", "arguments": "-a 'b c'"})
    placed = place(config, machine)
    assert (placed.script, placed.working_directory) == (str(tmp_path / "train.py"), str(tmp_path))
    assert placed.tensorboard_dir == str(tmp_path / "logs")
    assert (placed.platform, placed.devices) == ("cpu", 1)
    assert place(placed, machine) == placed
    assert command(placed, sys.executable) == [sys.executable, "-u", str(tmp_path / "train.py"), "-a", "b c"]
    assert short_command(placed) == "python train.py -a 'b c'"
    assert (subject(placed), data_name(placed)) == ("train.py", "")
    assert read_code(placed) == ("train.py", b"print(1)\n")


def test_an_interpreter_is_found_as_a_shell_finds_it(
    script: RunConfig, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bin_dir = tmp_path / "venv" / "bin"
    bin_dir.mkdir(parents=True)
    (bin_dir / "python").symlink_to(sys.executable)
    for name in ("venv/bin/python", str(bin_dir / "python")):
        placed = place(build_config({**to_mapping(script), "python": name}), machine)
        # A virtual environment is known by the link.
        assert placed.python == str(bin_dir / "python")
    monkeypatch.setenv("PATH", str(bin_dir))
    assert place(build_config({**to_mapping(script), "python": "python"}), machine).python == str(bin_dir / "python")


def test_a_module(script: RunConfig, machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "train.py").write_text("pass")
    placed = place(build_config({**to_mapping(script), "script": "module:package.train"}), machine)
    assert command(placed, sys.executable) == [sys.executable, "-u", "-m", "package.train"]
    assert subject(placed) == "package.train"
    assert read_code(placed) == ("train.py", b"pass")


@pytest.mark.parametrize(("processes", "devices"), [("per-device", 5), ("one", 1)])
def test_devices_and_processes(script: RunConfig, processes: str, devices: int) -> None:
    machine = Machine(cpu_cores=8, memory_total_bytes=1 << 34, memory_available_bytes=1, gpus=GPUS)
    placed = place(build_config({**to_mapping(script), "processes": processes}), machine)
    # No global batch is there to be divided, no model whose memory could be too much.
    assert len(placed.device_ids) == placed.devices == 5
    assert check_data_fits(placed, machine) == []
    plan = make_plan(placed)
    assert (plan.processes, plan.world_size) == (devices, devices)
    assert (plan.total_steps, plan.steps_per_epoch, plan.parameters, plan.flops_per_example) == (0, 0, None, None)
    with pytest.raises(ValueError, match="a run of backend script has no data set"):
        _ = plan.data


@pytest.mark.parametrize(
    ("values", "devices", "processes"),
    [({}, 1, 1), ({"devices": 2}, 2, 2), ({"processes": "one"}, 1, 1), ({"processes": "one", "devices": 2}, 2, 1)],
)
def test_without_gpus_there_is_one_process_unless_more_are_asked_for(
    script: RunConfig, machine: Machine, values: dict[str, object], devices: int, processes: int
) -> None:
    placed = place(build_config({**to_mapping(script), **values}), machine)
    assert (placed.devices, make_plan(placed).processes) == (devices, processes)


def test_only_its_own_keys_apply(script: RunConfig) -> None:
    idle = inapplicable_keys(to_mapping(script))
    assert {"model", "dataset", "epochs", "seed", "nan_policy", "momentum"} <= idle
    assert not idle & {"script", "arguments", "devices", "device_ids", "platform", "stop_grace_s"}
    assert {"script", "stop_grace_s"} <= inapplicable_keys(to_mapping(RunConfig()))


@pytest.mark.parametrize(("every", "problems"), [(1, []), (2, ["checkpoint_every"])])
def test_a_file_of_all_keys_may_have_an_earlier_default(script: RunConfig, every: int, problems: list[str]) -> None:
    config = msgspec.structs.replace(script, checkpoint_every=every)
    assert [problem.key for problem in check_file(config)] == problems


@pytest.mark.parametrize(
    ("text", "found"),
    [("", {}), ("A=1 B='x y'", {"A": "1", "B": "x y"}), ("A= B==", {"A": "", "B": "="}), ("A=1 A=2", {"A": "2"})],
)
def test_environment_variables(text: str, found: dict[str, str]) -> None:
    assert read_environment(text) == found


@pytest.mark.parametrize(
    ("arguments", "named", "words"),
    [
        ("", "", []),
        ("--lr {lr} {other}", "lr", ["--lr", "0.1", "{other}"]),
        ("opt.lr={opt.lr} --lr={opt/lr} {lr} {lr}", "opt.lr opt/lr lr", ["opt.lr=3", "--lr=2", "0.1", "0.1"]),
    ],
)
def test_a_script_learns_which_values_its_arguments_name(arguments: str, named: str, words: list[str]) -> None:
    given = {"lr": "0.1", "opt/lr": "2", "opt.lr": "3"}
    values = " ".join(f"{name}={value}" for name, value in given.items())
    config = RunConfig(backend="script", script="a.py", arguments=arguments, values=values)
    expected = {f"TUIAPP_CONFIG_{name}": value for name, value in given.items()}
    assert variables(config) == {**expected, **({"TUIAPP_IN_ARGUMENTS": named} if named else {})}
    assert command(config, "python")[3:] == words


def test_patterns() -> None:
    assert compile_pattern("") is not None
    assert set(compile_pattern(r"(?P<step>\d+) (?P<test__loss>\S+)").groupindex) == {"step", "test__loss"}
    for text in ("(", "(?P<1a>x)", "[z-a](?P<x>1)", "(?P<a>x)(?P<a>y)", "x{99999999999999999}(?P<x>1)"):
        with pytest.raises(ValueError, match="not a regular expression"):
            compile_pattern(text)


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("train.py", "train"),
        ("package.train", "package-train"),
        ("Train My Net (2).PY", "train-my-net-2"),
        ("é.py", "run"),
        ("x" * 90 + ".py", "x" * 40),
        ("net", "net"),
    ],
)
def test_the_runs_name(tmp_path: Path, name: str, slug: str) -> None:
    run = make_run_dir(tmp_path, "script", name)
    assert f"-script-{slug}-" in run.run_id
    assert RUN_ID.fullmatch(run.run_id)
    assert program_name(f"/a/b/{name}") == name


def test_values_take_the_place_of_their_names(script: RunConfig, machine: Machine) -> None:
    given = {"arguments": "--lr {lr} --json '{\"a\": {n}}' {other} {text}", "values": "lr=0.1 n=3 text='a b'"}
    placed = place(build_config({**to_mapping(script), **given, "environment": "A=1"}), machine)
    assert command(placed, "python")[3:] == ["--lr", "0.1", "--json", '{"a": 3}', "{other}", "a b"]
    own = {"TUIAPP_CONFIG_lr": "0.1", "TUIAPP_CONFIG_n": "3", "TUIAPP_CONFIG_text": "a b"}
    assert variables(placed) == {**own, "TUIAPP_IN_ARGUMENTS": "lr n text", "A": "1"}
    assert read_values(placed.values) == {"lr": 0.1, "n": 3, "text": "a b"}
    with pytest.raises(ConfigError, match="sets no variable"):
        build_config({**to_mapping(script), "values": "lr"})


def test_a_script_finds_its_values_in_its_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    from tuiapp.trainers.script import tracking

    monkeypatch.setenv("TUIAPP_MODE", "disabled")
    for name, value in {"lr": "0.1", "layers": "3", "amp": "true", "name": "base"}.items():
        monkeypatch.setenv(f"TUIAPP_CONFIG_{name}", value)
    run = tracking.init(config={"lr": 5, "own": 1})
    assert dict(run.config) == {"lr": 0.1, "own": 1, "layers": 3, "amp": True, "name": "base"}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter that has nothing installed: what this one has may import modules before a script runs."""
    directory = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    return str(directory / "bin" / "python")


def script_beside(directory: Path, text: str, *beside: str, name: str = "train.py") -> RunConfig:
    for file in beside:
        (directory / file).parent.mkdir(exist_ok=True)
        (directory / file).write_text("")
    (directory / name).write_text(text)
    return RunConfig(backend="script", script=str(directory / name), working_directory=str(directory))


def said(config: RunConfig, python: str) -> list[str]:
    return [problem.message for problem in check_hidden(config, python)]


@pytest.mark.parametrize(
    ("text", "package", "file", "module"),
    [
        ("import torch", "torch", "types.py", "types"),
        ("from torch import nn", "torch", "queue.py", "queue"),
        ("def main():\n    import jax.numpy", "jax", "secrets.py", "secrets"),
        ("import tuiapp", "tuiapp", "uuid/__init__.py", "uuid"),
    ],
)
def test_one_that_hides_a_module_of_pythons_own(
    tmp_path: Path, bare: str, text: str, package: str, file: str, module: str
) -> None:
    message = f"{tmp_path / file} hides Python's own module {module}, which {package} needs: rename it."
    assert said(script_beside(tmp_path, text, file), bare) == [message]


def test_the_script_itself(tmp_path: Path, bare: str) -> None:
    (message,) = said(script_beside(tmp_path, "import torch", name="random.py"), bare)
    assert message.startswith(f"{tmp_path / 'random.py'} hides Python's own module random")


@pytest.mark.parametrize("file", ["tuiapp.py", "tuiapp/__init__.py"])
def test_one_that_hides_this_package(tmp_path: Path, bare: str, file: str) -> None:
    config = script_beside(tmp_path, "import tuiapp", file)
    assert said(config, bare) == [f"{tmp_path / file} hides the package tuiapp, which the script imports: rename it."]
    assert said(script_beside(tmp_path, "import torch"), bare) == []


def test_a_copy_of_this_package_is_none(tmp_path: Path, bare: str) -> None:
    assert said(script_beside(tmp_path, "import tuiapp", "tuiapp/__init__.py", "tuiapp/trainers"), bare) == []


def test_what_hides_nothing(tmp_path: Path, bare: str) -> None:
    harmless = ("config.py", "trainers.py", "tests/__init__.py", "time.py", "os.py", "queue/data.py", "calendar.py")
    assert said(script_beside(tmp_path, "import torch, jax, tuiapp", *harmless), bare) == []
    # Nothing of torch's, JAX's or ours is in its process.
    assert said(script_beside(tmp_path, "print(1)", "types.py", "queue.py"), bare) == []


@pytest.mark.nightly
@pytest.mark.parametrize(
    "package", ["torch", "jax", "tuiapp.trainers.script.client, tuiapp.trainers.script.jobs, tuiapp.trainers.launch"]
)
def test_each_that_is_refused_is_needed(package: str) -> None:
    command = [sys.executable, "-c", f"import {package}, sys; print(*sys.modules)"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert {*USED_BY[package.partition(".")[0]].split()} <= {*loaded}
