"""What every test stands on: a home of its own, and a machine that is always the same."""

from __future__ import annotations

import gc
import os
import re
import signal
from collections.abc import Generator
from pathlib import Path

# A shell has what it starts in the background ignore Ctrl-C, and so would all that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Textual reads it when it is imported.
os.environ["TEXTUAL_ANIMATIONS"] = "none"

import hypothesis
import pytest
from textual.widgets import Input

from tests.kit import close
from tests.kit.at_rest import make_pilots_patient
from tuiapp.trainers.config.machine import Machine

ALL_LATER = re.compile(r"^pytestmark = .*pytest\.mark\.(nightly|by_hand)", re.MULTILINE)

# The same examples every time, so that a failure is the change's. `--hypothesis-profile=search` draws others, and more.
hypothesis.settings.register_profile("same", derandomize=True, database=None, deadline=None, print_blob=False)
hypothesis.settings.register_profile("search", database=None, deadline=None, max_examples=5000)
hypothesis.settings.load_profile("same")


MARGIN = "margin"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--margins", action="store_true", help="show differences as parts of what rounding explains")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out the files of which no test is everyday, unless others are asked for: importing them takes seconds."""
    everyday = config.getoption("markexpr") == "not nightly"
    if everyday and collection_path.suffix == ".py" and ALL_LATER.search(collection_path.read_text()):
        return True
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what takes too long for every night, unless `-m` names it, or is empty."""
    asked = config.getoption("markexpr")
    if not asked or "by_hand" in asked:
        return
    later = [item for item in items if item.get_closest_marker("by_hand")]
    config.hook.pytest_deselected(items=later)
    items[:] = [item for item in items if not item.get_closest_marker("by_hand")]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Has a test's report carry the largest margin of its comparisons; pytest-xdist brings it along."""
    close.margins.clear()
    try:
        return (yield)
    finally:
        if close.margins:
            item.user_properties.append((MARGIN, tuple(max(close.margins))))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not config.getoption("--margins"):
        return
    found = sorted(
        (
            (value, report.nodeid)
            for reports in terminalreporter.stats.values()
            for report in reports
            if getattr(report, "when", "") == "call"
            for name, value in report.user_properties
            if name == MARGIN
        ),
        reverse=True,
    )
    terminalreporter.section("differences, as parts of their tolerances")
    for (part, difference, tolerance), test in found:
        terminalreporter.write_line(f"{part:6.3f}  {difference:.1e} of {tolerance:.1e}  {test}")


def pytest_collection_finish() -> None:
    """Has the garbage collector pass over frameworks and tests, which stay, and look less often for what has gone."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the frameworks compiled for one test is there for the next.

    Each of pytest-xdist's processes has its own: JAX writes it in place, and others would read what is half written.
    """
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, compiled: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home directory: no preset, run or setting of the user's is read or written."""
    directory = tmp_path / "home"
    directory.mkdir()
    monkeypatch.setenv("HOME", str(directory))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(directory / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(directory / "data"))
    monkeypatch.setenv("TUIAPP_GPU_LEASES", str(directory / "leases"))
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(compiled / "jax"))
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "TUIAPP_RUNS_DIR", "TUIAPP_DATA_DIR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return directory


@pytest.fixture(autouse=True)
def _steady_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Input.cursor_blink, "_default", False)


@pytest.fixture(autouse=True)
def _patient_pilots(monkeypatch: pytest.MonkeyPatch) -> None:
    make_pilots_patient(monkeypatch)


@pytest.fixture
def machine() -> Machine:
    """Two cores, 8 GiB, no GPU."""
    return Machine(cpu_cores=2, memory_total_bytes=8 << 30, gpu_problem="no NVIDIA driver here")
