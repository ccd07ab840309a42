"""What the bare loops have in common: their arguments, the arrays, and what they print."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass
class Race:
    """One bare run: `python -m tests.bench.bare.NAME DATA SETTINGS`, an object of JSON with the keys below."""

    data: str
    """An .npz file with x_train, uint8 [N, H, W, C], and y_train, int64 [N]; of a text both are uint8 [N, context]; and
    classes, int64 []."""
    model: str
    devices: int
    epochs: int
    global_batch_size: int
    platform: str
    """cpu or cuda."""
    precision: str
    """As the key of that name."""
    compile: bool
    classes: int = 10
    """As the data have it, once it is loaded."""
    first_step: float = 0.0
    """When it was done, in seconds on the monotonic clock."""
    seconds: float = 0.0
    """That the epochs after the first took."""
    _began: float = field(default=0.0, repr=False)

    @classmethod
    def from_command_line(cls) -> Race:
        data, settings = sys.argv[1:]
        return cls(data, **json.loads(settings))

    def load(self) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """Images scaled to 0–1, float32 [N, H, W, C], or tokens, int64 [N, context], and labels, int64 [N, …]."""
        with np.load(self.data) as stored:
            x, labels = stored["x_train"], stored["y_train"].astype(np.int64)
            self.classes = int(stored["classes"])
        return x.astype(np.int64) if x.ndim == 2 else x.astype(np.float32) / 255, labels

    def begin_epoch(self) -> None:
        self._began = time.monotonic()

    def end_epoch(self, epoch: int) -> None:
        """An epoch is over, and what it computed is done: epochs count from 0."""
        self.seconds += time.monotonic() - self._began if epoch else 0.0

    def step_done(self) -> None:
        self.first_step = self.first_step or time.monotonic()

    def print_result(self, examples: int) -> None:
        steps = examples // self.global_batch_size
        rate = (self.epochs - 1) * steps * self.global_batch_size / self.seconds if self.seconds else None
        result: dict[str, Any] = {"first_step": self.first_step, "examples_per_second": rate}
        print(json.dumps(result), flush=True)
