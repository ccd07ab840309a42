"""Output whose reader is gone."""

from __future__ import annotations

import contextlib
import os
from typing import TextIO


def redirect_to_devnull(stream: TextIO) -> None:
    """Redirects a stream to devnull, so that the write at exit does not fail and replace the exit code with 120."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
