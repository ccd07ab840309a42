"""The runner, with small checks of its own, and what goes wrong with checks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.bench.gpu import __main__ as command
from tests.bench.gpu import smi
from tests.bench.gpu.box import Box
from tests.bench.gpu.checks import CHECKS
from tests.bench.gpu.findings import SkipCheck
from tests.bench.gpu.report import passed, table
from tests.bench.gpu.runner import BUDGET_S, END_S, Check, Outcome, run
from tests.kit.waiting import wait_until

GPU = "GPU-0000"


def good(box: Box) -> None:
    box.find.holds("it holds", True)
    box.find.at_least("figure", 3, 2)
    box.find.note("by the way", box.gpus)


def bad(box: Box) -> None:
    box.find.at_most("first figure", float("nan"), 2)
    box.find.at_least("second figure", None, 2)
    box.find.holds("it holds", True)


def raises(box: Box) -> None:
    box.find.holds("before that", True)
    raise ZeroDivisionError("by | nought")


def skips(box: Box) -> None:
    raise SkipCheck("there is no moon")


def skips_as_tests_do(box: Box) -> None:
    pytest.skip("no interpreter")


def hangs(box: Box) -> None:
    """With a process in a session of its own, as a run has them."""
    sleeper = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    box.find.holds("before that", True)
    (box.directory / "pid").write_text(str(sleeper.pid))
    time.sleep(1000)


def dies(box: Box) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def nothing(box: Box) -> None:
    pass


def check(function: str, takes_s: float = 1, limit_s: float = 60, gpus: int = 1, on_cpu: str = "") -> Check:
    return Check(function, "", f"{__name__}:{function}", takes_s, limit_s, gpus, on_cpu)


def outcomes(checks: Sequence[Check], report: Path, gpus: Sequence[str] = (), budget_s: float = 300) -> list[Outcome]:
    return list(run(checks, report, gpus, budget_s))


@pytest.mark.nightly
def test_what_goes_wrong_is_a_failed_check_and_the_next_one_begins(tmp_path: Path) -> None:
    wrong = ("bad", "raises", "dies", "nothing", "skips_as_tests_do")
    found = outcomes([check(name) for name in (*wrong, "skips", "good")], tmp_path, [GPU])
    assert [outcome.status for outcome in found] == ["failed"] * len(wrong) + ["skipped", "passed"]
    told = {outcome.name: outcome for outcome in found}
    assert told["bad"].why == "2 of 3 findings"
    assert [finding["ok"] for finding in told["bad"].findings] == [False, False, True]
    assert told["raises"].why == "ZeroDivisionError: by | nought"
    assert "in raises" in told["raises"].error
    assert [finding["what"] for finding in told["raises"].findings] == ["before that"]
    assert told["dies"].why == "its process ended by SIGSEGV"
    assert told["nothing"].why == "it has found nothing"
    assert told["skips"].why == "there is no moon"
    assert told["good"].findings[-1]["seen"] == "('GPU-0000',)"
    assert not passed(found)
    assert passed(found[-2:])


@pytest.mark.nightly
def test_a_check_that_hangs_is_ended_with_what_it_has_started(tmp_path: Path) -> None:
    (found,) = outcomes([check("hangs", limit_s=8)], tmp_path, [GPU])
    assert (found.status, found.why) == ("failed", "it was not done within 8 s")
    assert [finding["what"] for finding in found.findings] == ["before that"]
    # Where it hung.
    assert "in hangs" in found.error
    sleeper = int((tmp_path / "hangs" / "pid").read_text())
    assert not psutil.pid_exists(sleeper) or psutil.Process(sleeper).status() == psutil.STATUS_ZOMBIE
    assert found.seconds < 8 + END_S


def test_what_no_longer_fits_is_not_run(tmp_path: Path) -> None:
    found = outcomes([check("good", takes_s=500), check("good"), check("good", takes_s=100)], tmp_path, (), 60)
    assert [outcome.status for outcome in found] == ["not run", "passed", "not run"]
    assert found[0].why == "out of time: it takes 500 s, 50 were left of 60"
    assert not passed(found)


@pytest.mark.nightly
def test_the_budget_limits_a_check_that_takes_longer_than_planned(tmp_path: Path) -> None:
    (found,) = outcomes([check("hangs", takes_s=3, limit_s=1000)], tmp_path, (), END_S + 6)
    assert found.status == "failed"
    assert found.why.startswith("it was not done within ")
    assert found.seconds < 6 + END_S


@pytest.mark.parametrize(
    ("gpus", "values", "why"),
    [
        ([], {"on_cpu": "fills a GPU's memory"}, "fills a GPU's memory"),
        ([GPU], {"gpus": 2}, "needs 2 GPUs, there is 1"),
        ([GPU, "GPU-0001"], {"gpus": 2, "on_cpu": "no"}, ""),
        ([], {"gpus": 2}, ""),
    ],
)
def test_what_the_machine_lacks_is_skipped(gpus: list[str], values: dict[str, Any], why: str, tmp_path: Path) -> None:
    (found,) = outcomes([check("good", **values)], tmp_path, gpus)
    assert (found.status, found.why) == (("skipped", why) if why else ("passed", ""))


def test_the_table_is_markdown_of_one_line_a_check(tmp_path: Path) -> None:
    lines = table(outcomes([check("raises"), check("good")], tmp_path)).splitlines()
    assert len(lines) == 4
    assert {line.count("|") for line in lines} == {6}
    assert "| FAILED |" in lines[2]
    assert "ZeroDivisionError: by / nought" in lines[2]
    assert "figure: 3 (≥ 2); by the way" in lines[3]
    # What merely holds is in the JSON.
    assert "it holds" not in lines[3]


SMI = """\
0, GPU-1111, NVIDIA H100 80GB HBM3, 580.82.07, 81559, 628, 40213, 100, 612.44, 700.00, 61
1, GPU-2222, NVIDIA H100 80GB HBM3, 580.82.07, 81559, 628, 4, 0, [N/A], 700.00, 31
2, GPU-3333, NVIDIA H100 80GB HBM3, 580.82.07, 81559, 628, 0, 0, 70.10, 700.00, 30
"""


def test_idle_gpus_come_first_and_hidden_ones_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = smi.parse(SMI)
    assert rows[1]["uuid"] == "GPU-2222"
    assert smi.number(rows[1]["power.draw"]) is None
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert command.usable(rows) == ["GPU-2222", "GPU-3333", "GPU-1111"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    assert command.usable(rows) == ["GPU-3333", "GPU-1111"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert command.usable(rows) == []


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(smi, "ask", list)
    assert command.main([]) == 2
    assert "--on-cpu" in capsys.readouterr().err


def test_the_list_and_the_page_name_every_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [check.name for check in CHECKS]
    page = (Path(__file__).parent / "README.md").read_text()
    for one in CHECKS:
        assert f"| `{one.name}` | {one.takes_s:.0f} s |" in page
    assert all(check.takes_s < check.limit_s for check in CHECKS)
    # Of one GPU.
    assert sum(check.takes_s for check in CHECKS if not check.optional and check.gpus == 1) <= BUDGET_S - END_S


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_killed_it_has_reported_what_was_done(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "tests.bench.gpu", "--on-cpu", "--only", "devices", "endings", "--output"]
    with subprocess.Popen([*command, str(tmp_path)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline().startswith(b"devices      passed")
            wait_until((tmp_path / "endings" / "log.txt").exists)
            process.send_signal(number)
            process.wait(60)
        finally:
            process.kill()
            end_those_of(tmp_path)
    told = json.loads((tmp_path / "report.json").read_text())
    assert [(one["name"], one["status"]) for one in told["checks"]] == [("devices", "passed")]
    with tarfile.open(tmp_path / "pack.tar.gz") as archive:
        inside = set(archive.getnames())
    assert {"report.json", "report.md", "devices/findings.jsonl", "devices/log.txt"} <= inside
    # Asked to end, it has packed what the check had said.
    assert ("endings/log.txt" in inside) == (number == signal.SIGTERM)


def end_those_of(report: Path) -> None:
    """Ends what a command that was killed has left: its checks, and their runs."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("XDG_DATA_HOME", "").startswith(str(report / "home")):
                process.kill()


@pytest.mark.timeout(500)
@pytest.mark.by_hand
def test_on_the_cpu(tmp_path: Path) -> None:
    """What needs no GPU, for real: a few of the checks, as a user runs them."""
    names = ["devices", "memory", "clock", "energy"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.gpu", "--on-cpu", "--output", str(tmp_path), "--only", *names],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    told = json.loads((tmp_path / "report.json").read_text())
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == str(tmp_path / "report.json")
    assert told["passed"]
    assert told["on_cpu"]
    assert [one["name"] for one in told["checks"]] == names
    assert [one["status"] for one in told["checks"]] == ["passed", "skipped", "passed", "passed"]
    assert "| clock " in (tmp_path / "report.md").read_text()
    figures = {finding["what"]: finding for one in told["checks"] for finding in one["findings"]}
    assert float(figures["the sampler's share of a core, %"]["seen"]) > 0
