"""`python -m tuiapp.trainers.telemetry ORDER`: writes events to stdout as JSON lines, until nobody reads them."""

from __future__ import annotations

import signal
import sys

from tuiapp.trainers.telemetry.handover import decode_config
from tuiapp.trainers.telemetry.sampler import Sampler


def main() -> None:
    """Samples as ordered."""
    # Slurm sends it to every process of a job that it ends; this one ends with the run.
    signal.signal(signal.SIGTERM, lambda *_: None)
    Sampler(decode_config(sys.argv[1])).run()


if __name__ == "__main__":
    main()
