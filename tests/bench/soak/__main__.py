"""Short runs across backends with random faults: `python -m tests.bench.soak --seed N [--runs 200] [--minutes 40]`.

Beside them a queue, a sweep and a search go on, whose processes are killed at random. Prints a line per run, and at
the end what was left behind: processes, shared memory, sockets, run directories that cannot be read, journals without a
step that a rank had reported, queued runs that did not run once and in order. Exits with 1 if there is any.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.bench.soak.checks import Problem, check_run, shared_memory, sockets_left
from tests.bench.soak.faults import FAULTS, Plan, carry_out, choose
from tests.bench.soak.many import Many

QUICK_SHARE = 0.7
"""Of the runs, those with the fake backend: they meet more faults in the same time."""


def main() -> int:
    """Run them all; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.soak", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=40.0, help="begin no further run after so long")
    parser.add_argument("--fault", choices=sorted(FAULTS), help="this one alone")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    began, memory_before = time.monotonic(), shared_memory()
    problems: list[Problem] = []
    done: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="tuiapp-soak-", ignore_cleanup_errors=True) as place:
        _make_home(Path(place))
        many = Many(Path(place) / "many", chance)
        for number in range(1, options.runs + 1):
            if time.monotonic() - began > 60 * options.minutes:
                print(f"out of time after {number - 1} runs")
                break
            plan = choose(chance, QUICK_SHARE, options.fault)
            found = _one(plan, Path(place) / f"{number:04}")
            many.disturb()
            done[plan.fault] += 1
            problems += found
            print(f"{number:4} {'ok ' if not found else 'BAD'} {time.monotonic() - began:6.0f} s  {plan}", flush=True)
            for one in found:
                print(f"         {one.kind}: {one.text}", flush=True)
        problems += many.finish()
        left = shared_memory() - memory_before
        problems += [Problem("shared memory", name) for name in sorted(left)]
        problems += [Problem("socket", text) for text in sockets_left(place)]
    return _report(done, problems, time.monotonic() - began)


def _one(plan: Plan, directory: Path) -> list[Problem]:
    try:
        return check_run(plan, carry_out(plan, directory))
    except Exception:
        return [Problem("failed check", traceback.format_exc())]


def _make_home(place: Path) -> None:
    """No setting of the user's is read; the compilers' caches are shared by the runs."""
    home = place / "home"
    home.mkdir()
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        os.environ[name] = str(home)


def _report(done: Counter[str], problems: list[Problem], seconds: float) -> int:
    kinds = Counter(one.kind for one in problems)
    print(
        f"\n{sum(done.values())} runs in {seconds / 60:.1f} min: {', '.join(f'{n} {k}' for k, n in done.most_common())}"
    )
    for kind in ("orphan", "shared memory", "socket", "unreadable", "incomplete journal", "unexpected", "failed check"):
        print(f"{kinds[kind]:4} {kind}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
