"""Measures what the tests notice: `python -m tests.bench.faults`, one planted fault after the other; see README.md.

Each patch is applied to a copy of the tree. The tests that its line `Tests:` names run first, files and then folders,
then the rest of the everyday suite, until one fails. Prints a row of a Markdown table for each, and the count.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PATCHES = sorted(Path(__file__).resolve().parent.glob("[0-9]*.patch"))
EVERYDAY = "not nightly"
PASSED, STOPPED = (0, 5), (1, 2)
"""Exit codes of pytest: all tests have passed, or none was selected; one has failed, by itself or among several."""
VARIABLE = "FAULT_COPY"
"""Marks every process that is started for a copy, so that all can be ended."""


class Outcome(NamedTuple):
    code: int | None
    """Of pytest; None if it took too long."""
    test: str
    """The first that failed."""


def main() -> int:
    """Plants the faults; returns 1 if a suite could not be run."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.faults", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tree", type=Path, default=Path.cwd(), help="whose files are copied, as they are committed")
    parser.add_argument("--only", metavar="NN", nargs="+", help="these alone")
    parser.add_argument("--marker", default=EVERYDAY, help="selects tests (default: %(default)s)")
    parser.add_argument("--nightly", dest="marker", action="store_const", const="", help="all tests, nightly ones too")
    parser.add_argument("--room", action="store_true", help="the tests of the touched room alone")
    parser.add_argument("--clean", action="store_true", help="apply no patch: what fails then fails by itself")
    parser.add_argument("--minutes", type=float, default=20.0, help="at most for a suite (default: %(default)g)")
    options = parser.parse_args()
    # As Ctrl-C does: what was started is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    caught = wrong = 0
    chosen = [one for one in PATCHES if not options.only or one.name.partition("-")[0] in options.only]
    print(f"`-m '{options.marker}'`\n\n| Fault | Caught | By | Seconds |\n| --- | --- | --- | --- |", flush=True)
    for patch in chosen:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="tuiapp-fault-", ignore_cleanup_errors=True) as place:
            copy = make_copy(options.tree, Path(place) / "tree", None if options.clean else patch)
            room = re.findall(r"^Tests: (.+)$", patch.read_text(), re.MULTILINE)[0].split()
            files, done = sum(one.endswith(".py") for one in room), [f"--ignore={one}" for one in room]
            stages = [room[:files], ["-n", "2", *room[files:], *done[:files]], ["-n", "2", *done]]
            for words in stages[:1] + stages[1 + (files == len(room)) : 3 - options.room]:
                found = run(copy, words, options.marker, options.minutes)
                if found.code not in PASSED:
                    break
        said = "no" if found.code in PASSED else "took too long" if found.code is None else f"exit code {found.code}"
        if found.code in STOPPED and found.test:
            caught, said = caught + 1, "yes"
        wrong += said not in ("yes", "no")
        print(f"| {patch.stem} | {said} | {found.test} | {time.monotonic() - began:.0f} |", flush=True)
    print(f"\n{caught} of {len(chosen)} caught{f', {wrong} not measured' if wrong else ''}")
    return 1 if wrong else 0


def make_copy(tree: Path, copy: Path, patch: Path | None) -> Path:
    """Makes a copy of a tree's committed files, with a fault in it."""
    copy.mkdir()
    archive = subprocess.run(["git", "-C", tree, "archive", "HEAD"], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", copy], input=archive, check=True)
    if patch is not None:
        # In a repository around the copy Git would skip its files.
        environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(copy.parent)}
        subprocess.run(["git", "apply", patch], cwd=copy, env=environment, check=True)
    return copy


def run(copy: Path, words: list[str], marker: str, minutes: float) -> Outcome:
    """Runs pytest in a copy, whose package its processes import, until the first failure."""
    # Of an editable install the finder comes last, and a .pth's path after this one.
    environment = {**os.environ, "PYTHONPATH": str(copy), VARIABLE: str(copy)}
    for module in ("import tuiapp; print(tuiapp.__file__)", "import tuiapp.trainers.state as s; print(s.__file__)"):
        command = [sys.executable, "-P", "-c", module]
        found = subprocess.run(command, cwd="/", env=environment, check=True, capture_output=True, text=True).stdout
        if not Path(found.strip()).is_relative_to(copy):
            raise SystemExit(f"{found.strip()} is imported, not the copy in {copy}")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", marker, *words]
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        process = subprocess.Popen(
            command, cwd=copy, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )
        try:
            code = process.wait(60 * minutes)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            end_all(f"{VARIABLE}={copy}".encode())
            process.wait()
        said.seek(0)
        failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", said.read(), re.MULTILINE)
    return Outcome(code, failed[0] if failed else "")


def end_all(mark: bytes) -> None:
    """Ends every process that was started for a copy, by the mark in its environment."""
    for _ in range(3):
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0") and int(entry.name) != os.getpid():
                    os.kill(int(entry.name), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
