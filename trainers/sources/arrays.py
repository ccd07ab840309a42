"""A loaded data set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from trainers.sources.stored import StoredImages

Images: TypeAlias = npt.NDArray[np.uint8 | np.float32]
"""[N, H, W, C]: uint8 from 0 to 255, which training scales to 0–1, or float32, used unscaled."""
Labels: TypeAlias = npt.NDArray[np.int64]
"""int64 [N]."""


@dataclass(frozen=True, slots=True)
class Arrays:
    x_train: Images
    y_train: Labels
    x_test: Images
    y_test: Labels


@dataclass(frozen=True, slots=True)
class StoredArrays:
    """A data set whose images are read when they are wanted."""

    x_train: StoredImages
    y_train: Labels
    x_test: StoredImages
    y_test: Labels

    def resident(self) -> Arrays:
        """Reads all of it into memory."""
        return Arrays(self.x_train[:], self.y_train, self.x_test[:], self.y_test)
