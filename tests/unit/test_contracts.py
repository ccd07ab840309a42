"""What holds for all modules: who imports whom, no pickle is read, and how files are opened."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import tuiapp
import tuiapp.trainers
from tests.kit import ROOT

PLANTED = {
    "Trainers: each room imports only those below it": ("trainers.tasks.low", "tuiapp.trainers.config.options"),
    "The terminal program: each room imports only those below it": ("terminal.low", "tuiapp.library.find"),
    "The terminal program imports no training framework, not even transitively": ("view.trains", "torch"),
    "The terminal program knows the configuration, what runs leave, and the launcher": (
        "feeds.runs", "tuiapp.trainers.run.wire",
    ),
    "Trainers know nothing of the terminal": ("trainers.sources.draws", "rich"),
    "Other people's trainers are for their adapters and examples alone": ("widgets.adapts", "lightning"),
    "Tasks, configuration, contract and state stand on no framework": ("trainers.state.downloads", "pooch"),
    "What is drawn is drawn without Textual": ("view.draws", "textual"),
    "An action knows neither screens nor the command line": ("actions.parses", "argparse"),
    "The sampler imports configuration and contract alone: it starts fast and stays small": (
        "trainers.telemetry.large", "numpy",
    ),
    "The supervisor and what it starts beside ranks import no framework": ("trainers.run.trains", "torch"),
    "Backends know no other backend": ("trainers.backends.new", "tuiapp.trainers.backends.torch_dp"),
    "A framework's room knows no other framework's": (
        "trainers.frameworks.torch.other", "tuiapp.trainers.frameworks.jax",
    ),
    "The backends of Keras import neither Flax nor Optax": ("trainers.backends.keras_jax", "optax"),
    "MXNet's process imports no other framework": ("trainers.backends.mxnet_gluon", "optax"),
    "MXNet is for its backend alone": ("trainers.script.gluon", "mxnet"),
    "Keras is for the Keras backends alone": ("trainers.rank.layers", "keras"),
}  # fmt: skip


"""Contract → a module, new or there, and what is imported in it."""


def report(tree: Path) -> dict[str, str]:
    """Contract → what import-linter says of those that are broken."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as lint; lint()", "--no-cache"]
    environment = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    _, _, broken = done.stdout.partition("Broken contracts\n")
    lines, found, name = broken.splitlines(), dict[str, str](), ""
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if below and set(below) == {"-"} and line.strip() and set(line) != {"-"}:
            name = line
        elif name:
            found[name] = f"{found.get(name, '')}{line}\n"
    assert found, done.stdout + done.stderr
    return found


def test_each_finds_what_is_planted(tmp_path: Path) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert [contract["name"] for contract in contracts] == [*PLANTED]
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "tuiapp", tmp_path / "tuiapp", symlinks=True)
    shutil.copytree(ROOT / "trainers", tmp_path / "trainers")
    for module, forbidden in PLANTED.values():
        with (tmp_path / "tuiapp" / module.replace(".", "/")).with_suffix(".py").open("a") as file:
            file.write(f"\nimport {forbidden}\n")
    found = report(tmp_path)
    for name, (module, forbidden) in PLANTED.items():
        assert f"tuiapp.{module} -> {forbidden} " in found.get(name, ""), f"{name}: {found.get(name)}"
        others = {other for other, _ in PLANTED.values() if f"tuiapp.{other} " in found[name]}
        assert others == {module}, found[name]


MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "multiprocessing"}


"""multiprocessing pickles what it sends."""


CALLS = {"eval", "exec", "compile_command", "__import__"}
ROOMS = (tuiapp.trainers, tuiapp)
SOURCES = [path for room in ROOMS for path in sorted(Path(next(iter(room.__path__))).rglob("*.py"))]


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").split(".")[0]


def _reads_pickles(tree: ast.AST) -> Iterator[str]:
    yield from sorted(MODULES & set(_imported(tree)))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        arrays = called in ("np.load", "numpy.load", "np.lib.npyio.NpzFile", "np.lib.format.read_array")
        weights = called in ("torch.load", "keras.models.load_model", "keras.saving.load_model")
        if (
            called in CALLS
            or (arrays and given.get("allow_pickle", "False") != "False")
            or (weights and given.get("weights_only") != "True" and given.get("safe_mode") != "True")
            or given.get("allow_pickle") == "True"
            or "read_pickle" in called
            or called.startswith("yaml.")
        ):
            yield ast.unparse(node)


def test_no_pickle() -> None:
    assert len(SOURCES) > 300
    assert not {str(path): wrong for path in SOURCES if (wrong := [*_reads_pickles(ast.parse(path.read_text()))])}


FOR_THE_USER = (
    "actions/report.py", "exporters/", "integrations/keras.py", "verbs/", "state/tensorboard.py", "launch/prepare.py",
    # What all users share.
    "contract/gpu_leases.py",
)  # fmt: skip


"""Write what somebody asked for, where they asked for it: with their umask."""
NO_NAMES = ("devnull", "memfd", "open(stdout,", "open(_opened(")
"""Open descriptors, or what is no file."""


def _opens_otherwise(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        name = called.rpartition(".")[2]
        text = ast.unparse(node)
        if name == "open" and node.args and any(word in text for word in NO_NAMES):
            continue
        modes = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        if (
            (name == "open" and any(mode[:1] in "wax" and len(mode) <= 3 for mode in modes) and "opener=" not in text)
            or (name in ("mkdir", "makedirs", "touch") and "mode=" not in text)
            or (called == "os.open" and "O_CREAT" in text)
            or name in ("write_text", "write_bytes")
        ):
            yield text


def test_files_of_ours_are_opened_in_one_way() -> None:
    own = [path for path in SOURCES if not any(part in str(path) for part in FOR_THE_USER)]
    found = {str(path): wrong for path in own if (wrong := [*_opens_otherwise(ast.parse(path.read_text()))])}
    assert not found, "\n".join(f"{path}: {calls}" for path, calls in found.items())


def test_what_cannot_be_examined_is_not_there() -> None:
    """`Path.exists` and the like raise where a directory may not be read, or a server does not answer."""
    asked = (
        (path, node)
        for path in SOURCES
        # What studies are asked is no path.
        if "experiments/" not in str(path) and not str(path).endswith(("verbs/study.py", "view/study.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and not node.args and isinstance(node.func, ast.Attribute)
        if node.func.attr in ("exists", "is_file", "is_dir", "is_symlink") and ast.unparse(node.func.value) != "entry"
    )
    assert [f"{path}:{node.lineno}: {ast.unparse(node)}" for path, node in asked] == []
