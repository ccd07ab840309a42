"""What PyTorch's backends optimize: losses, the figures of an evaluation, initial and averaged weights, loss scale."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.config.user_code import UserCodeError
from tuiapp.trainers.rank.checkpoints import Checkpoints
from tuiapp.trainers.rank.initial import frozen_names, initial_weights
from tuiapp.trainers.rank.reporter import Reporter
from tuiapp.trainers.sources.own_loss import LOSS, NOTHING, Own, Score, fitting


def cross_entropy(logits: Tensor, labels: Tensor, reduction: str = "mean", smoothing: float = 0.0) -> Tensor:
    """Returns each label's loss, or the mean: logits [batch, classes] and labels [batch], or with an axis of tokens.

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
        """Returns what training minimizes, float32 []."""
        if self.own.loss:
            return self.each(logits, labels).mean()
        return cross_entropy(logits, labels, smoothing=self.smoothing)

    def trained(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Returns the losses that `mean` averages, float32 [labels]."""
        return self.each(logits, labels) if self.own.loss else cross_entropy(logits, labels, "none", self.smoothing)

    def each(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Returns the losses that an evaluation averages, float32 [labels]."""
        if self.own.loss is None:
            return cross_entropy(logits, labels, "none")
        return self._values(LOSS, self.own.loss, logits, labels)

    def figures(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Returns sums over the labels of what `Own.figures` names beside the loss, float64 [figures]."""
        per_label = [cross_entropy(logits, labels, "none")] if self.own.loss else []
        per_label += [self._values(name, function, logits, labels) for name, function in self.own.metrics]
        sums = [values.sum(dtype=torch.float64) for values in per_label]
        return torch.stack(sums) if sums else torch.zeros(0, dtype=torch.float64, device=labels.device)

    def _values(self, name: str, function: Score, logits: Tensor, labels: Tensor) -> Tensor:
        """Returns a function's value of each label, [labels]; one of an example counts for all of its labels."""
        values: Tensor = function(logits.float(), labels)
        self.own.check_shape(name, values, tuple(labels.shape))
        return values.reshape(len(labels), -1).float().expand(len(labels), labels[0].numel()).flatten()


def losses_of(plan: Plan, device: torch.device) -> Losses:
    """Returns the losses of a run; raises UserCodeError for functions of the user's own that cannot be used."""
    functions = fitting(plan.config)

    def call(function: Score, outputs: Any, labels: Any) -> tuple[object, Any]:
        result = function(torch.from_numpy(outputs).to(device).requires_grad_(), torch.from_numpy(labels).to(device))
        if not isinstance(result, Tensor):
            return result, None
        if function is functions.loss and not result.requires_grad:
            raise UserCodeError(
                f"loss of {functions.file} has no gradient; compute it from the outputs, by PyTorch alone."
            )
        return result, result.numpy(force=True)

    functions.check(plan.data.input_shape, plan.data.classes, call)
    return Losses(functions, plan.config.label_smoothing)


@torch.no_grad()
def begin(plan: Plan, model: nn.Module, report: Reporter, checkpoints: Checkpoints) -> None:
    """Freezes parameters and, unless the run resumes, gives the model its initial weights, by the configuration.

    Before the optimizer, DDP or FSDP takes the parameters. A frozen one gets no gradient, so that nothing updates,
    decays, clips or exchanges it; BatchNorm's running statistics go on. Raises ConfigError.
    """
    # A model may have some that it does not train itself.
    parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    arrays = model.state_dict()
    frozen = frozen_names(plan.config.freeze, parameters)
    for name in frozen:
        parameters[name].requires_grad_(False)
    if checkpoints.resumed is None:
        shapes = {name: tuple(array.shape) for name, array in arrays.items()}
        for name, array in initial_weights(plan, report, shapes, parameters, frozen).items():
            arrays[name].copy_(torch.from_numpy(array))


class Average:
    """The average of a model's parameters, from their present values on, where `ema` says so; of none otherwise.

    Buffers, such as BatchNorm's running statistics, are those of the model. Of parameters that are split over the ranks
    each rank averages its part. Those of bfloat16 and float16 have an average in float32: in their own type most of its
    updates would be rounded away.
    """

    def __init__(self, config: RunConfig, model: nn.Module) -> None:
        self._decay = config.ema
        self._parameters = dict(model.named_parameters()) if config.ema else {}
        self.kept = {
            name: parameter.detach().to(torch.promote_types(parameter.dtype, torch.float32), copy=True)
            for name, parameter in self._parameters.items()
        }
        """The averages, by the parameters' names."""

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Takes in the weights after a step, counted from 1; see `RunConfig.ema`."""
        if self.kept:
            decay = min(self._decay, (1 + step) / (10 + step))
            kept, present = ([*map(own_part, weights.values())] for weights in (self.kept, self._parameters))
            present = [weight.to(average.dtype) for weight, average in zip(present, kept, strict=True)]
            torch._foreach_lerp_(kept, present, 1 - decay)

    @contextmanager
    def used(self) -> Iterator[None]:
        """Gives the model the averaged weights for as long as this lasts."""
        rounded = {
            name: self.kept[name].clone() for name, parameter in self._parameters.items() if parameter.itemsize < 4
        }
        self._swap()
        try:
            yield
        finally:
            self._swap()
            for name, exact in rounded.items():
                own_part(self.kept[name]).copy_(own_part(exact))

    @torch.no_grad()
    def _swap(self) -> None:
        # In place: FSDP, CUDA graphs and Keras know the parameters' memory.
        for kept, present in zip(self.kept.values(), self._parameters.values(), strict=True):
            average, weight = own_part(kept), own_part(present)
            before = weight.clone()
            weight.copy_(average)
            average.copy_(before)


def own_part(tensor: Tensor) -> Tensor:
    """Returns this rank's part of a tensor, in the same memory."""
    tensor = tensor.detach()
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


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
        """Returns the scale, and the number of steps skipped so far."""
        return self.get_scale(), int(self.skipped)

    def saved(self) -> dict[str, Tensor]:
        """Returns what a checkpoint has of the loss scale."""
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


Key = TypeVar("Key")


def by_type(tensors: Mapping[Key, Tensor]) -> Iterable[dict[Key, Tensor]]:
    """Groups tensors by type, in their order: one tensor can hold those of a type."""
    groups: dict[torch.dtype, dict[Key, Tensor]] = {}
    for key, tensor in tensors.items():
        groups.setdefault(tensor.dtype, {})[key] = tensor
    return groups.values()


def flatten(tensors: Iterable[Tensor]) -> Tensor:
    """Copies of all values of tensors of one type and device, one after the other, the last axis the densest."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
