"""numpy, without a thread per core for linear algebra that the dashboard has none of."""

from __future__ import annotations

import importlib
import os
import sys

BLAS_THREADS = "OPENBLAS_NUM_THREADS"
"""Read by numpy's OpenBLAS when it is loaded, and never again."""


def import_numpy() -> None:
    """Import numpy before something else does.

    Its threads, one for each core, would be started and spin for a while: some 20 to 60 ms of processor time. The
    processes that are started later get the variable as it was.
    """
    if "numpy" in sys.modules or BLAS_THREADS in os.environ:
        return
    os.environ[BLAS_THREADS] = "1"
    try:
        importlib.import_module("numpy")
    finally:
        del os.environ[BLAS_THREADS]
