"""What is refused before anything starts, with one clear message and exit code 2; where options may stand."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np
import pytest

import tuiapp
from tests.kit.command_line import Command, Done, as_process
from tuiapp.cli import _parse, build_parser
from tuiapp.library.presets import load_config, presets_dir
from tuiapp.trainers.config.machine import Machine

MAX_MESSAGE = 2000


def check_refused(done: Done, runs_dir: Path, *words: str) -> None:
    """Exit code 2, nothing on stdout, the words on stderr, and no trace of a run."""
    assert done.code == 2, done
    assert done.out == ""
    lines = done.err.splitlines()
    assert lines
    assert all(line.startswith("tuiapp: ") and line.isprintable() for line in lines), done.err
    assert len(done.err) < MAX_MESSAGE
    for word in words:
        assert word in done.err
    assert not runs_dir.exists() or os.listdir(runs_dir) == []


SETTINGS = {
    "unknown-key": ("epoch=3", "epoch: unknown key. Did you mean 'epochs'?"),
    "no-value": ("epochs", "epochs: no value given; write --set epochs=VALUE."),
    "range": (
        "epochs=0",
        "epochs: 0 is not allowed; it must be a whole number of at least 1 and of at most 1,000,000.",
    ),
    "escape": ("optimizer=\x1b]52;c;aGk=\x07", r"optimizer: '\x1b]52;c;aGk=\x07' is not allowed"),
    "no-utf8": ("optimizer=\udcff", r"optimizer: '\udcff' is not allowed"),
    "batch": ("global_batch_size=47", "global_batch_size: 47 cannot be split evenly over 2 devices; 46 or 48 can."),
    "momentum": ("momentum=0.5", "momentum: 0.5 would have no effect with optimizer adam: it applies only to sgd."),
    "gpu": ("platform=cuda", "platform: cuda cannot be used here: "),
    "code-that-is-missing": ("model=py:/none/net.py:net", "model: /none/net.py cannot be read: No such file"),
    "folder-that-is-missing": ("dataset=folder:/none", "dataset: /none cannot be read: No such file or directory."),
    "devices": ("devices=12", "devices: 12 is more than this machine has: "),
}


@pytest.mark.usefixtures("small_machine")
@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_is_wrong(tuiapp: Command, runs_dir: Path, name: str) -> None:
    setting, words = SETTINGS[name]
    more = ["--set", "devices=2"] if name == "batch" else []
    check_refused(tuiapp("run", "quickstart", *more, "--set", setting, "--json"), runs_dir, words)


def test_every_wrong_setting_is_named(tuiapp: Command, runs_dir: Path) -> None:
    done = tuiapp("run", "--set", "epochs=0", "--set", "optimzer=adam", "--set", "seed=x")
    check_refused(done, runs_dir, "epochs: 0", "optimzer: unknown key", "seed: 'x'")
    assert len(done.err.splitlines()) == 3


def test_a_preset_that_is_not_there(tuiapp: Command, runs_dir: Path) -> None:
    check_refused(tuiapp("run", "quickstrat"), runs_dir, "no preset 'quickstrat'. Did you mean 'quickstart'?")
    check_refused(tuiapp("run", ""), runs_dir, "no preset ''. Available: ")
    check_refused(tuiapp("run", "..", "--json"), runs_dir, "no preset '..'.")


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("run quickstart --epochs 3", "--epochs 3; to set a configuration key: --set epochs=3\n"),
        ("run --learning-rate=0.1", "to set a configuration key: --set learning_rate=0.1\n"),
        ("run quickstart epochs=3", "to set a configuration key: --set epochs=3\n"),
        ("run lr=0.1", "'lr=0.1' is no preset. To set a configuration key: --set learning_rate=0.1\n"),
        # 64 is taken for the preset.
        ("run --batch-size 64 quickstart", "--set global_batch_size=VALUE\n"),
        # A share of the steps is no number of steps.
        ("run quickstart --warmup-ratio 0.1", "--set warmup_steps=VALUE\n"),
        ("runs --jsn", "tuiapp runs: error: unrecognized arguments: --jsn. Did you mean --json?\n"),
        ("stop latest --wait", "tuiapp stop: error: unrecognized arguments: --wait\n"),
    ],
)
def test_a_key_given_as_an_option(words: str, wanted: str, runs_dir: Path) -> None:
    done = as_process(*words.split())
    assert (done.code, done.out) == (2, "")
    assert done.err.endswith(wanted)
    assert not runs_dir.exists()


def test_a_preset_that_is_broken(tuiapp: Command, runs_dir: Path) -> None:
    presets_dir().mkdir(parents=True)
    path = presets_dir() / "mine.toml"
    path.write_text('epochs = "many"\nseed = -1\n')
    done = tuiapp("run", "mine", "--set", "epochs=3")
    check_refused(done, runs_dir, f"tuiapp: {path}: epochs: 'many' is not allowed", f"{path}: seed: -1 is not allowed")


def test_what_has_no_effect_is_refused_where_somebody_asks_for_it(tuiapp: Command, runs_dir: Path) -> None:
    def refused(*settings: str) -> Done:
        return tuiapp("run", "quickstart", *(word for text in settings for word in ("--set", text)))

    words = "sync_batch_norm: true would have no effect with model mlp: it applies only to net or convnet or resnet18."
    check_refused(refused("model=mlp", "sync_batch_norm=true"), runs_dir, words)
    backends = "torch-ddp or torch-fsdp or torch-dp"
    words = f"compile: true would have no effect with backend jax-sharding: it applies only to {backends}."
    check_refused(refused("backend=jax-sharding", "compile=true"), runs_dir, words)


def test_what_a_preset_has_goes_with_its_optimizer(tuiapp: Command, runs_dir: Path) -> None:
    assert tuiapp("presets", "save", "mine", "--set", "optimizer=sgd", "--set", "momentum=0.5").code == 0
    assert tuiapp("presets", "save", "other", "mine", "--set", "optimizer=adam").code == 0
    assert load_config("mine").momentum == 0.5
    assert (load_config("other").optimizer, load_config("other").momentum) == ("adam", 0.9)
    path = presets_dir() / "by-hand.toml"
    path.write_text("nesterov = true\n")
    for source in ("by-hand", path):
        words = f"{path}: nesterov: true would have no effect with optimizer adam"
        check_refused(tuiapp("run", source), runs_dir, words)


FILES = {
    "binary": (b"\xff\xfe\x00", "is not UTF-8 text"),
    "long": (b"# long\n" * 1_500_000, "is longer than 64 KiB"),
    "newer": (b"schema = 2\n", "schema: 2 is not supported: this version of tuiapp reads schema 1."),
    "together": (b'platform = "cpu"\nprecision = "tf32"\n', "precision: tf32 is a GPU format"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_wrong(tuiapp: Command, runs_dir: Path, tmp_path: Path, name: str) -> None:
    data, words = FILES[name]
    path = tmp_path / "x.toml"
    path.write_bytes(data)
    check_refused(tuiapp("run", path), runs_dir, f"tuiapp: {path}: ", words)


def test_a_file_that_is_no_file(tuiapp: Command, runs_dir: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.toml")
    (tmp_path / "directory.toml").mkdir()
    (tmp_path / "loop.toml").symlink_to(tmp_path / "loop.toml")
    for name, words in {
        "fifo": "cannot be read: not a regular file.",
        "directory": "cannot be read: not a regular file.",
        "loop": "cannot be read: ",
        "x" * 300: "cannot be read: File name too long.",
        "missing": "cannot be read: No such file or directory.",
    }.items():
        check_refused(tuiapp("run", tmp_path / f"{name}.toml"), runs_dir, words)
    check_refused(tuiapp("run", "~nobody-at-all/x.toml"), runs_dir, "~nobody-at-all/x.toml: cannot be read: ")


def test_a_file_name_is_made_fit_for_the_terminal(tuiapp: Command, runs_dir: Path) -> None:
    check_refused(tuiapp("run", "./\x1b]0;title\x07x.toml"), runs_dir, "./x.toml: cannot be read")


def test_a_runs_directory_that_cannot_be_made(tuiapp: Command, runs_dir: Path, tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("in the way")
    for directory in (in_the_way, in_the_way / "runs", Path("/proc/runs")):
        done = tuiapp("run", "mlp", "--set", "platform=cpu", "--runs-dir", directory)
        check_refused(
            done, runs_dir, f"Cannot create a run directory in {directory}: ", "--runs-dir or TUIAPP_RUNS_DIR"
        )
    assert in_the_way.read_text() == "in the way"


def test_an_empty_runs_directory_is_not_the_one_the_user_stands_in(
    tuiapp: Command, runs_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    done = tuiapp("run", "mlp", "--runs-dir", "")
    assert (done.code, done.out) == (2, "")
    assert "--runs-dir: it is empty" in done.err
    assert not runs_dir.exists()
    assert list((tmp_path / "here").iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [["no-such-verb"], ["run", "a", "b"], ["run", "--no-such-option"], ["show"], ["stop"], ["presets", "rename", "x"]],
)
def test_usage(tuiapp: Command, runs_dir: Path, arguments: list[str]) -> None:
    done = tuiapp(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("usage: tuiapp")
    assert not runs_dir.exists()


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["attch"], "attach"),
        (["presets", "rnemae"], "rename"),
        (["runs", "--sort", "acuracy"], "accuracy"),
        # By what other programs call it.
        (["list"], "tuiapp runs"),
        (["resume", "latest"], "tuiapp run --resume RUN"),
    ],
)
def test_a_word_that_is_mistyped_is_guessed(tuiapp: Command, arguments: list[str], meant: str) -> None:
    done = tuiapp(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.endswith(f" Did you mean '{meant}'?\n")


def test_ctrl_c_before_the_command_has_begun(monkeypatch: pytest.MonkeyPatch, tuiapp: Command) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tuiapp.cli.build_parser", interrupted)
    done = tuiapp("runs")
    assert (done.code, done.out, done.err) == (130, "", "")


def see_free(monkeypatch: pytest.MonkeyPatch, machine: Machine, free: int) -> None:
    """`tuiapp run` sees that much memory free."""
    machine = msgspec.structs.replace(machine, memory_available_bytes=free)
    monkeypatch.setattr("tuiapp.verbs.run.inspect_machine", lambda: machine)


def test_data_that_unpack_to_more_than_the_memory(
    tuiapp: Command, runs_dir: Path, tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = np.zeros((30_000, 32, 32), np.uint8), np.arange(30_000) % 2
    file = tmp_path / "zeros.npz"
    np.savez_compressed(file, x_train=x, y_train=y, x_test=x[:1], y_test=y[:1])
    assert file.stat().st_size < 200_000
    arguments = ["run", "--set", f"dataset=npz:{file}", "--set", "platform=cpu", "--set", "model=mlp"]
    see_free(monkeypatch, machine, 3 * x.nbytes)
    words = f"dataset: npz:{file} takes 0.03 GiB of memory in each of 4 copies, 0.11 GiB in all, but 0.09 GiB are free."
    check_refused(tuiapp(*arguments, "--set", "devices=4"), runs_dir, words, "Use less data or fewer devices")


@pytest.mark.parametrize("option", ["--exclusive", "--partition=gpu", "-p gpu -t 1:00:00"])
def test_options_of_sbatch_may_begin_with_a_dash(
    tuiapp: Command, runs_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, option: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = tuiapp("run", "--set", "platform=cpu", "--slurm", option)
    check_refused(done, runs_dir, "Slurm takes no job: sbatch is not on this machine")


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield the parsers of all verbs and actions."""
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not nested:
        yield parser
    for action in nested:
        for one in action.choices.values():
            yield from leaves(one)


SEVERAL = [
    parser.prog.split()[1:] for parser in leaves(build_parser())
    if parser.prog != "tuiapp help" and {action.nargs for action in parser._get_positional_actions()} & {"*", "+"}
]  # fmt: skip


@pytest.mark.parametrize("verb", SEVERAL, ids=" ".join)
def test_an_option_between_the_words_of_a_verb(verb: list[str]) -> None:
    words, option = ["one", "two", "three"], ["--runs-dir", "/r"]
    option += ["-o", "page.html"] if verb == ["report"] else []
    first, *others = [vars(_parse([*verb, *words[:place], *option, *words[place:]])) for place in range(4)]
    assert first.pop("parser").prog == f"tuiapp {' '.join(verb)}"
    for other in others:
        assert {**other, "parser": None} == {**first, "parser": None}


def test_words_after_an_option_that_takes_a_value() -> None:
    options = _parse(["metrics", "latest", "loss", "--points", "5", "--json", "eval/loss"])
    assert (options.run, options.metrics, options.points, options.json) == ("latest", ["loss", "eval/loss"], 5, True)


def test_what_follows_two_dashes_is_the_scripts() -> None:
    options = _parse(["run", "--detach", "train.py", "--name", "x", "--", "--json", "-y", "--", "z"])
    assert (options.source, options.name, options.json) == ("train.py", "x", False)
    assert options.arguments == ["--json", "-y", "--", "z"]


def test_a_word_that_looks_like_an_option_stands_after_two_dashes() -> None:
    assert _parse(["rm", "-y", "--", "--odd"]).runs == ["--odd"]


def test_what_a_verb_does_not_know_is_still_refused(tuiapp: Command) -> None:
    done = tuiapp("metrics", "latest", "--jsno", "loss")
    assert done.code == 2
    assert "unrecognized arguments: --jsno loss. Did you mean --json?" in done.err


Program: TypeAlias = Callable[..., Done]


"""A `tuiapp` command, run without some package."""


BRINGS = {
    "torch": ("torch", "torchgen", "functorch"),
    "jax": ("jax", "jaxlib"),
    "keras": ("keras",),
    "flax": ("flax",),
    "mxnet": ("mxnet",),
}


"""Package → what of it lies in an environment's directory; `torch-2.11.0.dist-info` and the like go as well."""


@pytest.fixture
def without(tmp_path: Path, runs_dir: Path) -> Callable[[str], Program]:
    """Makes an environment without a package."""

    def make(package: str) -> Program:
        place = tmp_path / f"without-{package}"
        venv.create(place / "env", symlinks=True)
        packages = place / "packages"
        packages.mkdir()
        for found in installed():
            if found.name.split("-")[0] not in BRINGS[package]:
                (packages / found.name).symlink_to(found)
        (listing,) = (place / "env" / "lib").glob("python*/site-packages")
        source = Path(tuiapp.__file__).parents[1]
        (listing / "shared.pth").write_text(f"{packages}\n{source}\n")

        def run(*arguments: object) -> Done:
            command = [str(place / "env" / "bin" / "python"), "-P", "-m", "tuiapp", *map(str, arguments)]
            own = {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
            done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False, env=own)
            return Done(done.returncode, done.stdout, done.stderr)

        return run

    return make


def installed() -> list[Path]:
    """All that lies in the directories of packages that this interpreter looks into, the first of each name."""
    found: dict[str, Path] = {}
    for directory in map(Path, sys.path):
        if directory.name == "site-packages":
            for path in directory.iterdir():
                if path.suffix != ".pth":
                    found.setdefault(path.name, path)
    return list(found.values())


def slow(backend: str, package: str, extra: str) -> object:
    return pytest.param(backend, package, extra, marks=pytest.mark.nightly)


@pytest.mark.parametrize(
    ("backend", "package", "wanted"),
    [
        ("torch-ddp", "torch", "pip install 'torch<"),
        slow("torch-dp", "torch", "pip install 'torch<"),
        slow("jax-sharding", "flax", "pip install 'filelock"),
        slow("jax-pmap", "jax", "pip install 'filelock"),
        slow("keras-jax", "keras", "pip install 'keras<"),
        slow("keras-torch", "torch", "pip install 'keras<"),
        slow("mxnet-gluon", "mxnet", "tuiapp env create mxnet"),
    ],
)
def test_it_is_refused(
    without: Callable[[str], Program], runs_dir: Path, home: Path, backend: str, package: str, wanted: str
) -> None:
    before = sorted(home.rglob("*"))
    done = without(package)("run", "quickstart", "--set", f"backend={backend}", "--json")
    assert (done.code, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert line.startswith(f"tuiapp: backend: {backend} cannot run here: {package} not installed: ")
    assert wanted in line
    assert sorted(home.rglob("*")) == before
    assert not runs_dir.exists()
    print(f"\n{line}")
