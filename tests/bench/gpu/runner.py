"""Runs checks one after the other, each in a process of its own with a time limit, and gathers what they found.

A check that raises, hangs or dies with its driver is a failed check, and the next one begins. Whatever it started is
ended: its process group, and what carries its mark in the environment (`tests.kit.leftovers`).
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.kit.leftovers import MARK, end_marked

BUDGET_S = 470.0
"""For everything: of a machine that is lent for ten minutes the rest goes into installing."""

END_S = 10.0
"""What the end of a check's last processes may take of that."""

CPU_PATIENCE = 2.0
"""By how much limits are longer on the CPU, which others use, too."""

TAIL_BYTES = 4000
"""Of a check's log, in the report of one that failed."""

Status = Literal["passed", "failed", "skipped", "not run"]


@dataclass(frozen=True)
class Check:
    name: str
    proves: str
    function: str
    """MODULE:NAME; takes a `Box`."""
    takes_s: float
    """As planned for one H100: with less time left it is not begun."""
    limit_s: float
    gpus: int = 1
    """How many it needs."""
    on_cpu: str = ""
    """Why it has no meaning on the CPU; "" if it has one."""
    optional: bool = False
    """It is run if time is left, and its lack is no failure."""


@dataclass(frozen=True)
class Outcome:
    name: str
    proves: str
    status: Status
    seconds: float = 0.0
    why: str = ""
    """Why it failed, was skipped or was not run, in a line; "" if its findings say it."""
    findings: list[dict[str, Any]] = field(default_factory=list)
    """See `Findings`."""
    error: str = ""
    """A traceback, or the end of the log."""


def run(checks: Sequence[Check], report: Path, gpus: Sequence[str], budget_s: float = BUDGET_S) -> Iterator[Outcome]:
    """Runs checks on GPUs, given by UUID, or without any on the CPU; yields each outcome as it is there."""
    deadline = time.monotonic() + budget_s
    for check in checks:
        left = deadline - time.monotonic() - END_S
        if reason := _missing(check, len(gpus)):
            yield Outcome(check.name, check.proves, "skipped", why=reason)
        elif left < check.takes_s:
            why = f"out of time: it takes {check.takes_s:.0f} s, {max(0.0, left):.0f} were left of {budget_s:.0f}"
            yield Outcome(check.name, check.proves, "skipped" if check.optional else "not run", why=why)
        else:
            limit_s = check.limit_s if gpus else CPU_PATIENCE * check.limit_s
            yield _run_one(check, report, gpus, min(limit_s, left))


def _missing(check: Check, gpus: int) -> str:
    if not gpus:
        return check.on_cpu
    return f"needs {check.gpus} GPUs, there is {gpus}" if gpus < check.gpus else ""


def _run_one(check: Check, report: Path, gpus: Sequence[str], limit_s: float) -> Outcome:
    place, mark = report / check.name, secrets.token_hex(8)
    place.mkdir(parents=True, exist_ok=True)
    found, log = place / "findings.jsonl", place / "log.txt"
    found.unlink(missing_ok=True)
    began = time.monotonic()
    words = [check.name, check.function, str(report), str(began + limit_s), *gpus]
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.gpu.one_check", *words],
            stdin=subprocess.DEVNULL, stdout=file, stderr=file, env={**os.environ, MARK: mark}, start_new_session=True,
        )  # fmt: skip
    try:
        code: int | None = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        # Ctrl-C, too.
        left = _end(process, mark)
    findings = [json.loads(line) for line in found.read_text().splitlines()] if found.exists() else []
    status, why, error = _judge(findings, code, limit_s, log)
    if left:
        status, why = "failed", "; ".join(filter(None, (why, left)))
    return Outcome(check.name, check.proves, status, time.monotonic() - began, why, findings, error)


def _judge(findings: list[dict[str, Any]], code: int | None, limit_s: float, log: Path) -> tuple[Status, str, str]:
    """Status, reason, and the traceback or the end of the log."""
    last = findings.pop() if findings and "ended" in findings[-1] else {}
    if code is None:
        return "failed", f"it was not done within {limit_s:.0f} s", _tail(log)
    if "skipped" in last:
        return "skipped", last["skipped"], ""
    if "raised" in last:
        return "failed", last["raised"].strip().splitlines()[-1], last["raised"]
    if not last:
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        return "failed", f"its process ended {how}", _tail(log)
    judged = [finding for finding in findings if finding["ok"] is not None]
    if not judged:
        return "failed", "it has found nothing", ""
    bad = sum(not finding["ok"] for finding in judged)
    return ("failed", f"{bad} of {len(judged)} findings", "") if bad else ("passed", "", "")


def _end(process: subprocess.Popen[bytes], mark: str) -> str:
    """Ends what is left of a check; says what cannot be ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(END_S)
        end_marked(mark, END_S)
    except (subprocess.TimeoutExpired, AssertionError):
        return "processes are left that cannot be killed"
    return ""


def _tail(log: Path) -> str:
    return log.read_bytes()[-TAIL_BYTES:].decode(errors="replace")
