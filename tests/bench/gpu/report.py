"""The report: a table for people, which is Markdown, and JSON."""

from __future__ import annotations

import json
import os
import platform
import tarfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench.gpu.runner import Outcome
from tuiapp.trainers.config.files import write_atomically
from tuiapp.trainers.config.installed import installed_version

PACKAGES = ("tuiapp", "torch", "jax", "flax", "keras", "numpy", "textual", "transformers", "lightning", "nvidia-ml-py")

PACKED = {".json", ".jsonl", ".md", ".txt", ".log", ".toml", ".png", ".svg"}
MOST_BYTES = 8 << 20
"""Of one file of a pack."""

HEADINGS = ("check", "proves", "result", "seconds", "found")


def passed(outcomes: Sequence[Outcome]) -> bool:
    """What was not run for want of time has proved nothing."""
    return not any(outcome.status in ("failed", "not run") for outcome in outcomes)


def machine(gpus: Sequence[dict[str, str]]) -> dict[str, Any]:
    """What the report was made on; the GPUs as `nvidia-smi` has them."""
    versions = {name: version for name in PACKAGES if (version := installed_version(name))}
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "versions": versions,
        "gpus": list(gpus),
    }


def write(report: Path, outcomes: Sequence[Outcome], facts: dict[str, Any]) -> None:
    """Writes `report.json` and `report.md`, whole or not at all."""
    found = {**facts, "passed": passed(outcomes), "checks": [asdict(outcome) for outcome in outcomes]}
    write_atomically(report / "report.json", (json.dumps(found, indent=2, ensure_ascii=False) + "\n").encode())
    write_atomically(report / "report.md", table(outcomes).encode())


def pack(report: Path) -> None:
    """Makes `pack.tar.gz` of the report, findings, logs, pictures and journals: no weights, arrays or caches."""
    unfinished = report / ".pack.tar.gz"
    with tarfile.open(unfinished, "w:gz", compresslevel=3) as archive:
        for path in sorted(report.rglob("*")):
            inside = path.relative_to(report)
            wanted = path.suffix in PACKED and path.is_file() and not path.is_symlink()
            if wanted and inside.parts[0] != "home" and path.stat().st_size <= MOST_BYTES:
                archive.add(path, inside)
    unfinished.replace(report / "pack.tar.gz")


def table(outcomes: Sequence[Outcome]) -> str:
    """Rows as wide as what they hold, so that it reads as plain text, too."""
    rows = [HEADINGS, *(_cells(outcome) for outcome in outcomes)]
    # The last column is as long as it wants to be.
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS) - 1)]
    ruled = [rows[0], tuple("-" * width for width in [*widths, len(HEADINGS[-1])]), *rows[1:]]
    lines = (
        " | ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]) for row in ruled
    )
    return "".join(f"| {line} |\n" for line in lines)


def _cells(outcome: Outcome) -> tuple[str, ...]:
    told = [outcome.why, *(_words(finding) for finding in outcome.findings if _is_told(finding))]
    text = "; ".join(filter(None, told)).replace("|", "/").replace("\n", " ")
    status = outcome.status if outcome.status == "passed" else outcome.status.upper()
    return outcome.name, outcome.proves, status, f"{outcome.seconds:.0f}", text


def _is_told(finding: dict[str, Any]) -> bool:
    """Figures, remarks and failures; what merely holds is in the JSON."""
    return finding["ok"] is not True or bool(finding["wanted"])


def _words(finding: dict[str, Any]) -> str:
    mark = "**FAILED** " if finding["ok"] is False else ""
    seen = " ".join(filter(None, (finding["seen"], f"({finding['wanted']})" if finding["wanted"] else "")))
    return f"{mark}{finding['what']}{f': {seen}' if seen else ''}"
