"""The process of one check: `python -m tests.bench.gpu.one_check NAME MODULE:FUNCTION REPORT UNTIL GPU…`."""

from __future__ import annotations

import faulthandler
import importlib
import json
import sys
import time
import traceback
from pathlib import Path

from tests.bench.gpu.box import Box
from tests.bench.gpu.findings import Findings, SkipCheck


def main(name: str, function: str, report: str, until: str, *gpus: str) -> None:
    # Where it hangs is in its log before it is ended, at `until` on the monotonic clock.
    faulthandler.dump_traceback_later(max(0.1, 0.9 * (float(until) - time.monotonic())))
    box = Box(Path(report), name, gpus, Findings(Path(report) / name / "findings.jsonl"))
    ended: dict[str, object] = {"ended": True}
    try:
        module, _, found = function.partition(":")
        getattr(importlib.import_module(module), found)(box)
    except SkipCheck as reason:
        ended["skipped"] = str(reason)
    except BaseException:
        # pytest's outcomes, which parts of the tests raise, are no Exceptions.
        ended["raised"] = traceback.format_exc()
    with box.find.path.open("a") as file:
        file.write(json.dumps(ended) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
