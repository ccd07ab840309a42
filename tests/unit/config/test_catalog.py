"""The catalog's figures, held against the real models and data."""

from __future__ import annotations

import importlib.util
import re

import jax
import jax.numpy as jnp
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tests.kit.model_tasks import IMAGE_MODELS
from tuiapp.trainers.config.catalog import BACKENDS, MODELS, Backend
from tuiapp.trainers.config.run_config import RunConfig, cross_check
from tuiapp.trainers.frameworks.jax import models as flax_models
from tuiapp.trainers.frameworks.jax.devices import by_name
from tuiapp.trainers.frameworks.torch import models as torch_models

SHAPES = [(28, 28, 1), (32, 32, 3), (17, 23, 2)]
CONTEXTS = [(128,), (40,)]
INPUTS = {name: SHAPES if name in IMAGE_MODELS else CONTEXTS for name in MODELS}
CASES = [(name, shape) for name, shapes in INPUTS.items() for shape in shapes]


def example(shape: tuple[int, ...]) -> torch.Tensor:
    """A batch of two, as PyTorch's models take it."""
    images = torch.zeros(2, shape[-1], *shape[:-1])
    return torch.zeros(2, *shape, dtype=torch.long) if len(shape) == 1 else images


@pytest.mark.parametrize("classes", [2, 10, 100])
@pytest.mark.parametrize(("name", "shape"), CASES)
def test_parameters_are_those_of_the_torch_model(name: str, shape: tuple[int, ...], classes: int) -> None:
    model = torch_models.build(name, shape, classes)
    assert MODELS[name].size(shape, classes).parameters == sum(p.numel() for p in model.parameters() if p.requires_grad)


@pytest.mark.nightly
@pytest.mark.parametrize("classes", [2, 10])
@pytest.mark.parametrize(("name", "shape"), CASES)
def test_weights_are_those_of_the_flax_model(name: str, shape: tuple[int, ...], classes: int) -> None:
    model = flax_models.build(name, classes)
    # Shapes only: nothing is computed.
    made = jax.eval_shape(lambda: model.init(jax.random.key(0), flax_models.empty(shape), train=False))
    assert MODELS[name].size(shape, classes).weights == {key: one.shape for key, one in by_name(made["params"]).items()}


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "shape"), CASES)
def test_flops_are_those_that_torch_counts(name: str, shape: tuple[int, ...]) -> None:
    model = torch_models.build(name, shape, 10)
    # Other kernels of attention compute the weights again on the way back.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(example(shape)).sum().backward()
    assert 2 * MODELS[name].size(shape, 10).flops == counter.get_total_flops()


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_images_of_the_least_size_go_through_and_smaller_ones_do_not(name: str) -> None:
    side = MODELS[name].min_side
    model = torch_models.build(name, (side, side + 1, 3), 4).eval()
    assert model(torch.zeros(2, 3, side, side + 1)).shape == (2, 4)
    flax_model = flax_models.build(name, 4)
    jax.eval_shape(lambda: flax_model.init(jax.random.key(0), jnp.zeros((2, side, side + 1, 3)), train=False))
    if side > 1:
        with pytest.raises((RuntimeError, ValueError)):
            torch_models.build(name, (side, side - 1, 3), 4).eval()(torch.zeros(2, 3, side, side - 1))


@pytest.mark.parametrize("name", BACKENDS)
def test_backends_are_there_when_their_packages_are(name: str) -> None:
    backend = BACKENDS[name]
    assert backend.builtin == bool(backend.module)
    assert not backend.module or importlib.util.find_spec(backend.module) is not None
    assert (backend.unavailable() == "") == (backend.missing() == [])


def test_what_to_install_is_said() -> None:
    backend = Backend(
        "b",
        "m",
        "s",
        packages=("numpy", "no_such_thing_1", "no_such_thing_2"),
        extras=("torch", "jax"),
        engine="",
        process_per_device=True,
    )
    assert backend.missing() == ["no_such_thing_1", "no_such_thing_2"]
    # The requirement as pyproject.toml declares it, bounds included.
    assert re.fullmatch(
        r"no_such_thing_1, no_such_thing_2 not installed: pip install 'torch[<>=0-9.,]+' "
        r"'filelock.+' 'flax.+' 'jax.+' 'optax.+', or tuiapp env create numpy",
        backend.unavailable(),
    )


def test_a_precision_that_the_framework_lacks_is_refused() -> None:
    (problem,) = cross_check(RunConfig(backend="mxnet-gluon", platform="cpu", precision="bfloat16"))
    assert str(problem.message) == "mxnet-gluon cannot train in bfloat16; it takes float32."
    assert not cross_check(RunConfig(backend="mxnet-gluon", platform="cpu"))
