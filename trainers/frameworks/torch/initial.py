"""What a new model begins with, and what of it is frozen, with PyTorch; see `tuiapp.trainers.rank.initial`."""

from __future__ import annotations

import torch
from torch import nn

from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.rank.checkpoints import Checkpoints
from tuiapp.trainers.rank.initial import frozen_names, initial_weights
from tuiapp.trainers.rank.reporter import Reporter


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
