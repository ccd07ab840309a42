"""Prints every sentence that a user can meet, file by file, so that they can be read as a whole.

    python -m tests.sentences [COMMIT]

Given a commit, prints what came (+) and went (-) since then. A sentence is a string of two words or more in `tuiapp` or
`trainers` that is neither a docstring nor a style sheet; what is filled in stands in braces.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("tuiapp", "trainers")
TWO_WORDS = re.compile(r"[A-Za-z]{2,}.* [A-Za-z{]", re.DOTALL)


def sentences(source: str) -> Iterator[str]:
    """Those of a module, in their order."""
    tree = ast.parse(source)
    left_out = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr | ast.Expr)
        for part in (node.values if isinstance(node, ast.JoinedStr) else [node.value])
        if isinstance(part, ast.Constant)
    }
    found = [
        (node.lineno, text)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in left_out and (text := _text(node))
    ]
    for _, text in sorted(found):
        if TWO_WORDS.search(text) and not re.search(r"^\s*[\w-]+: .*;$", text, re.MULTILINE):
            yield " ".join(text.split())


def _text(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    parts = []
    for part in node.values:
        if isinstance(part, ast.Constant):
            parts.append(str(part.value))
        elif isinstance(part, ast.FormattedValue):
            parts.append(f"{{{ast.unparse(part.value)}}}")
    return "".join(parts)


def now() -> dict[str, str]:
    """The sources as they are: file → text."""
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return {str(path.relative_to(ROOT)): path.read_text() for path in files}


def then(commit: str) -> dict[str, str]:
    """The sources as they were in a commit."""
    names = _git("ls-tree", "-r", "--name-only", commit, "--", *FOLDERS).split()
    return {name: _git("show", f"{commit}:{name}") for name in names if name.endswith(".py")}


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Prints them."""
    present = {name: list(sentences(text)) for name, text in now().items()}
    if not sys.argv[1:]:
        for name, found in present.items():
            if found:
                print(f"\n{name}", *found, sep="\n  ")
        return
    before = {one for text in then(sys.argv[1]).values() for one in sentences(text)}
    after = {one for found in present.values() for one in found}
    print(*(f"- {one}" for one in sorted(before - after)), *(f"+ {one}" for one in sorted(after - before)), sep="\n")


if __name__ == "__main__":
    main()
