"""What PyTorch's backends train on: cross entropy, or a loss of the user's own, and the figures of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.config.user_code import UserCodeError
from tuiapp.trainers.sources.own_loss import LOSS, NOTHING, Own, Score, fitting


def cross_entropy(logits: Tensor, labels: Tensor, reduction: str = "mean", smoothing: float = 0.0) -> Tensor:
    """The loss of each label, or its mean: logits [batch, classes] and labels [batch], or with an axis of tokens.

    Mixed labels are the classes' shares, float32 [batch, classes].
    """
    labels = labels if labels.is_floating_point() else labels.flatten()
    return F.cross_entropy(logits.flatten(0, -2), labels, reduction=reduction, label_smoothing=smoothing)


@dataclass(frozen=True)
class Losses:
    """The losses of logits, [batch, classes], and labels, int64 [batch], or both with an axis of tokens."""

    own: Own = NOTHING
    smoothing: float = 0.0
    """Label smoothing in training."""

    def mean(self, logits: Tensor, labels: Tensor) -> Tensor:
        """What training minimizes, float32 []."""
        if self.own.loss:
            return self.each(logits, labels).mean()
        return cross_entropy(logits, labels, smoothing=self.smoothing)

    def trained(self, logits: Tensor, labels: Tensor) -> Tensor:
        """What that is the mean of, float32 [labels]."""
        return self.each(logits, labels) if self.own.loss else cross_entropy(logits, labels, "none", self.smoothing)

    def each(self, logits: Tensor, labels: Tensor) -> Tensor:
        """What an evaluation takes the mean of, float32 [labels]."""
        if self.own.loss is None:
            return cross_entropy(logits, labels, "none")
        return self._values(LOSS, self.own.loss, logits, labels)

    def figures(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Sums over the labels of what an evaluation reports beside the loss, by `Own.figures`: float64 [figures]."""
        found = [cross_entropy(logits, labels, "none")] if self.own.loss else []
        found += [self._values(name, function, logits, labels) for name, function in self.own.metrics]
        sums = [values.sum(dtype=torch.float64) for values in found]
        return torch.stack(sums) if sums else torch.zeros(0, dtype=torch.float64, device=labels.device)

    def _values(self, name: str, function: Score, logits: Tensor, labels: Tensor) -> Tensor:
        """A function's value of each label, [labels]; one of an example counts for all of its labels."""
        found: Tensor = function(logits.float(), labels)
        self.own.check_shape(name, found, tuple(labels.shape))
        return found.reshape(len(labels), -1).float().expand(len(labels), labels[0].numel()).flatten()


def losses_of(plan: Plan, device: torch.device) -> Losses:
    """Raises UserCodeError for functions of the user's own that cannot be used, and what those raise."""
    own = fitting(plan.config)

    def call(function: Score, outputs: Any, labels: Any) -> tuple[object, Any]:
        found = function(torch.from_numpy(outputs).to(device).requires_grad_(), torch.from_numpy(labels).to(device))
        if not isinstance(found, Tensor):
            return found, None
        if function is own.loss and not found.requires_grad:
            raise UserCodeError(f"loss of {own.file} has no gradient; compute it from the outputs, by PyTorch alone.")
        return found, found.numpy(force=True)

    own.check(plan.data.input_shape, plan.data.classes, call)
    return Losses(own, plan.config.label_smoothing)
