"""The Gluon models and optimizers in MXNet's interpreter: `python -m tests.kit.on_mxnet DIR`.

DIR has `<case>.npz` and `<case>.json` for each case, and gets `<case>.out.npz`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

from tuiapp.trainers.config.catalog import MODELS
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.frameworks.mxnet import models as mxnet_models
from tuiapp.trainers.frameworks.mxnet.state import build_optimizer, clip, named_parameters

CONTEXTS = [mx.cpu(0), mx.cpu(1)]


class Case(msgspec.Struct):
    model: str = ""
    train: bool = False
    config: RunConfig | None = None
    """Of an optimizer."""
    rates: list[float] = []


def main() -> None:
    directory = Path(sys.argv[1])
    for file in sorted(directory.glob("*.json")):
        case = msgspec.json.decode(file.read_bytes(), type=Case)
        with np.load(file.with_suffix(".npz"), allow_pickle=False) as stored:
            arrays = dict(stored)
        found = forward(case, arrays) if case.config is None else updates(case.config, case.rates, arrays)
        np.savez(file.with_suffix(".out.npz"), **found)


def forward(case: Case, arrays: dict[str, Any]) -> dict[str, Any]:
    """Logits, and the parameters after them."""
    x = arrays.pop("x")
    shape = (*x.shape[2:], x.shape[1])
    model = mxnet_models.create(case.model, shape, 10, [mx.cpu(0)])
    parameters = named_parameters(model)
    trained = [one for one in parameters.values() if one.grad_req != "null"]
    assert sum(np.prod(one.shape) for one in trained) == MODELS[case.model].size(shape, 10).parameters
    assert parameters.keys() == arrays.keys()
    for name, parameter in parameters.items():
        parameter.set_data(mx.np.array(arrays[name]))
    if case.train:
        with autograd.record():
            logits = model(mx.np.array(x))
        # Running statistics change with the backward pass.
        logits.backward()
    else:
        logits = model(mx.np.array(x))
    return {"logits": logits.asnumpy(), **{name: one.data().asnumpy() for name, one in parameters.items()}}


def updates(config: RunConfig, rates: list[float], arrays: dict[str, Any]) -> dict[str, Any]:
    """The parameters after all updates, on each context; each has the gradients of one example of two."""
    # Two parameters: gradients are clipped by the norm over both.
    start = split(arrays["start"])
    parameters = [gluon.Parameter(f"part{number}", shape=part.shape) for number, part in enumerate(start)]
    for parameter, part in zip(parameters, start, strict=True):
        parameter.initialize(ctx=CONTEXTS)
        parameter.set_data(mx.np.array(part))
    trainer = gluon.Trainer(parameters, build_optimizer(config), kvstore="device", update_on_kvstore=False)
    for gradient, rate in zip(arrays["gradients"], rates, strict=True):
        with autograd.record():
            losses = [product(parameters, split(gradient), context) for context in CONTEXTS]
        autograd.backward(losses)
        trainer.allreduce_grads()
        for context in CONTEXTS if config.gradient_clip else ():
            clip(parameters, context, config.gradient_clip * len(CONTEXTS))
        trainer.set_learning_rate(rate)
        trainer.update(len(CONTEXTS))
    replicas = [np.concatenate([one.data(context).asnumpy() for one in parameters]) for context in CONTEXTS]
    return {"parameters": np.stack(replicas)}


def product(parameters: list[Any], gradients: list[Any], context: Any) -> Any:
    """A loss with these gradients."""
    pairs = zip(parameters, gradients, strict=True)
    return sum((parameter.data(context) * mx.np.array(part, ctx=context)).sum() for parameter, part in pairs)


def split(array: Any) -> list[Any]:
    return np.split(array, [3])


if __name__ == "__main__":
    main()
