"""How files are opened, and asked for: what is written is private, and what cannot be examined is no error."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.unit.test_no_pickle import SOURCES

FOR_THE_USER = (
    "actions/report.py", "exporters/", "integrations/keras.py", "verbs/", "state/tensorboard.py", "launch/prepare.py",
    # What all users share.
    "contract/gpu_leases.py",
)  # fmt: skip
"""Write what somebody asked for, where they asked for it: with their umask."""


def _wrong(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        name = called.rpartition(".")[2]
        text = ast.unparse(node)
        # No names of files.
        if name == "open" and node.args and ("devnull" in text or "memfd" in text or text.startswith("open(answer,")):
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
    found = {str(path): wrong for path in own if (wrong := [*_wrong(ast.parse(path.read_text()))])}
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
