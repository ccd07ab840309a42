"""No pickle is ever read: neither by name nor through what reads pickles on the quiet."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import tuiapp
import tuiapp.trainers

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


def _wrong(tree: ast.AST) -> Iterator[str]:
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
    assert len(SOURCES) > 400
    assert not {str(path): wrong for path in SOURCES if (wrong := [*_wrong(ast.parse(path.read_text()))])}
