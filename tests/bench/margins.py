"""How much of their tolerances comparisons need, on this processor made to round as others do: one factor at a time.

`python -m tests.bench.margins [TEST…]` runs those of `TESTS`, or the tests given, once as they are and once under each
factor, and prints a table: each test's largest margin, and under what.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import NamedTuple

FACTORS = [
    "",
    *(f"ATEN_CPU_CAPABILITY={name}" for name in ("default", "avx2", "avx512")),
    *(f"ONEDNN_MAX_CPU_ISA={name}" for name in ("SSE41", "AVX2", "AVX512_CORE")),
    *(f"MKL_CBWR={name}" for name in ("COMPATIBLE", "AVX2")),
    *(f"XLA_FLAGS=--xla_cpu_max_isa={name}" for name in ("SSE4_2", "AVX", "AVX2")),
    *(f"OMP_NUM_THREADS={threads}" for threads in (1, 2, 4)),
]
"""Those that a processor lacks change nothing on it."""
TESTS = ["tests/real/frameworks", "tests/real/backends", "tests/real/test_data_parallel.py"]
LINE = re.compile(r"^ *(\d+\.\d+|inf)  (\S+) of (\S+)  (tests/.*)$", re.MULTILINE)
"""What `pytest --margins` prints of a test."""


class Worst(NamedTuple):
    """The largest margin of a test."""

    margin: float
    difference: float
    tolerance: float
    factor: str


def measured(factor: str, arguments: list[str]) -> tuple[dict[str, Worst], str]:
    """Test → its margin under a factor, and what pytest said last."""
    name, _, value = factor.partition("=")
    environment = {**os.environ, **({name: value} if name else {})}
    # Of given tests those that are by hand, too.
    marked = "" if arguments else "not by_hand"
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-m", marked, "--margins", *(arguments or TESTS)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    found = {
        test: Worst(float(margin), float(difference), float(tolerance), factor or "as it is")
        for margin, difference, tolerance, test in LINE.findall(done.stdout)
    }
    return found, done.stdout.strip().splitlines()[-1]


def main() -> None:
    """Measure and print."""
    worst: dict[str, Worst] = {}
    for factor in FACTORS:
        found, said = measured(factor, sys.argv[1:])
        print(f"{factor or 'as it is'}: {said}", flush=True)
        for test, margin in found.items():
            worst[test] = max(worst.get(test, margin), margin)
    print("\n| Test | Difference | Tolerance | Margin | Under |\n| --- | --- | --- | --- | --- |")
    for test, one in sorted(worst.items(), key=lambda item: item[1], reverse=True):
        print(f"| `{test}` | {one.difference:.1e} | {one.tolerance:.1e} | {one.margin:.3f} | {one.factor} |")


if __name__ == "__main__":
    main()
