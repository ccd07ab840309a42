"""What becomes of output that nobody reads any more."""

from __future__ import annotations

import contextlib
import os
from typing import TextIO


def redirect_to_devnull(stream: TextIO) -> None:
    """Have all that is still written to a stream go nowhere, also what Python itself writes there as it ends.

    With a reader that is gone that would fail once more, and make an exit code of 120 of any other.
    """
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
