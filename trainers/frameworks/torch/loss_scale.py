"""Scales the loss in float16, whose gradients would otherwise be too small for it."""

from __future__ import annotations

import torch
from torch import Tensor

from tuiapp.trainers.config.run_config import RunConfig


class LossScale(torch.amp.GradScaler):
    """PyTorch's, which skips the steps whose gradients overflow, and halves the scale; it also counts them.

    Does nothing with another precision. All ranks have the same: they find an overflow in gradients that they have
    exchanged, or with FSDP tell each other of it.
    """

    def __init__(self, config: RunConfig, device: torch.device) -> None:
        super().__init__(device.type, enabled=config.precision == "float16")
        self.skipped = torch.zeros((), dtype=torch.int64, device=device)

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Adapts the scale after a step."""
        if not self.is_enabled():
            return
        assert self._scale is not None
        before = self._scale.clone()
        super().update(new_scale)
        self.skipped += self._scale < before

    def read(self) -> tuple[float, int]:
        """The scale, and the number of steps skipped so far."""
        return self.get_scale(), int(self.skipped)

    def saved(self) -> dict[str, Tensor]:
        """What a checkpoint has of it."""
        if not self.is_enabled():
            return {}
        state = self.state_dict()
        return {
            "scale": torch.tensor(state["scale"], dtype=torch.float64),
            "good_steps": torch.tensor(state["_growth_tracker"]),
            "skipped": self.skipped,
        }

    def restore(self, saved: dict[str, Tensor]) -> None:
        if self.is_enabled() and saved:
            scale, good_steps = float(saved["scale"]), int(saved["good_steps"])
            self.load_state_dict({**self.state_dict(), "scale": scale, "_growth_tracker": good_steps})
            self.skipped.copy_(saved["skipped"])
