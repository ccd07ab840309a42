"""BatchNorm over the examples of all ranks, for CPU tensors: PyTorch's nn.SyncBatchNorm takes GPU tensors only.

Names and values are nn.BatchNorm2d's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

PIXELS = (0, 2, 3)


def synchronize(model: nn.Module, device: torch.device, examples: Sequence[int] = ()) -> nn.Module:
    """Makes every BatchNorm layer normalize with the statistics of all ranks' examples; parameters stay the same.

    `examples` says how many each rank has, if these are not equally many.
    """
    if device.type == "cuda":
        return cast(nn.Module, nn.SyncBatchNorm.convert_sync_batchnorm(model))
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.BatchNorm2d):
                setattr(parent, name, SyncBatchNorm2d(child, examples))
    return model


class SyncBatchNorm2d(nn.BatchNorm2d):
    """nn.BatchNorm2d in place of `norm`, in training with the mean and the variance of all ranks' examples."""

    def __init__(self, norm: nn.BatchNorm2d, examples: Sequence[int] = ()) -> None:
        super().__init__(norm.num_features, norm.eps, norm.momentum)
        self._shares = [count / sum(examples) for count in examples]
        self.weight, self.bias = norm.weight, norm.bias
        for name, buffer in norm.named_buffers():
            setattr(self, name, buffer)

    # torch.compile skips it: such collectives do not go into a compiled graph.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, x: Tensor) -> Tensor:
        if not self.training or dist.get_world_size() == 1:
            return super().forward(x)
        assert self.momentum is not None
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        y, mean, variance = _Normalize.apply(x.float(), self.weight, self.bias, self.eps, self._shares)
        with torch.no_grad():
            count = _count(x, self._shares)
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * (count / (count - 1)), self.momentum)
        return cast(Tensor, y.to(x.dtype))


class _Normalize(torch.autograd.Function):
    """The layer's arithmetic, with one collective forward and one backward.

    Source: S. Ioffe and C. Szegedy, Batch Normalization, 2015, section 3 (https://arxiv.org/abs/1502.03167), the sums
    over the batch taken over all ranks.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float, shares: list[float]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Normalizes x [N, C, H, W]; also returns the mean and the biased variance of all ranks' examples, [C].

        `shares` has each rank's part of them; empty for equal ones.
        """
        moments = torch.stack(torch.var_mean(x, PIXELS, correction=0))
        gathered = [torch.empty_like(moments) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, moments)
        variances, means = torch.stack(gathered).unbind(1)
        parts = x.new_tensor(shares).unsqueeze(1)
        mean = (means * parts).sum(0) if shares else means.mean(0)
        # The variance around the ranks' own means, plus that of these around the overall mean.
        around = variances + (means - mean) ** 2
        variance = (around * parts).sum(0) if shares else around.mean(0)
        ctx.count = _count(x, shares)
        ctx.save_for_backward(x, weight, mean, (variance + eps).rsqrt())
        ctx.mark_non_differentiable(mean, variance)
        return F.batch_norm(x, mean, variance, weight, bias, eps=eps), mean, variance

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        """Returns gradients of the sum of all ranks' losses; those of weight and bias are this rank's part."""
        x, weight, mean, inverse_std = ctx.saved_tensors
        shape = (1, -1, 1, 1)
        normalized = (x - mean.view(shape)) * inverse_std.view(shape)
        sums = torch.stack([grad.sum(PIXELS), (grad * normalized).sum(PIXELS)])
        both = sums.clone()
        dist.all_reduce(both)
        both /= ctx.count
        of_bias, of_weight = (mean_over_all.view(shape) for mean_over_all in both)
        grad_x = (weight * inverse_std).view(shape) * (grad - of_bias - normalized * of_weight)
        return grad_x, sums[1], sums[0], None, None


def _count(x: Tensor, shares: list[float]) -> int:
    """Returns how many values of a channel all ranks have, of which x [N, C, H, W] has this rank's."""
    count = x.numel() // x.shape[1]
    return round(count / shares[dist.get_rank()]) if shares else count * dist.get_world_size()
