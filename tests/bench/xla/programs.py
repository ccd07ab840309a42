"""Which programs are compiled, and what is wanted of each."""

from __future__ import annotations

import msgspec

from tests.kit.model_tasks import EXAMPLE
from tests.kit.recorder import JAX_BACKENDS
from tuiapp.trainers.config.catalog import GPT_LAYERS, MODELS, backends_with
from tuiapp.trainers.config.run_config import RunConfig

EXAMPLES = {"gpt-small": 64}
"""Model → examples of each device, if not 256: enough for activations to be most of its memory."""
MEMORY_WITHIN = 0.2
UNSHARED_BYTES = 16 << 10
"""Of a step's results: losses, and the table of the results' addresses."""
WIDE = {"gpt-small": 2 * GPT_LAYERS}
"""Model → matrix products in float32 in 16 bits, too: JAX's attention multiplies the gradients of its scores so."""


class Program(msgspec.Struct):
    """What is in a compiled step, in bytes on one device."""

    seconds: float
    """That compiling took."""
    estimated: int
    compiled: int
    exchanged: dict[str, dict[str, int]]
    """As the sharding panel states it."""
    made: int
    """By all collectives, counted where they are done."""
    wide: list[str]
    """Matrix products and convolutions in float32 where they shall be in 16 bits."""
    unaliased: int
    """Of the results: what takes no argument's place."""


def configs() -> dict[str, RunConfig]:
    """Each program's name and configuration."""
    kinds = [(1, "tf32", ""), (4, "bfloat16", "")]
    found = [(backend, model, *kind) for backend in JAX_BACKENDS for model in MODELS for kind in kinds]
    found += [("jax-sharding", model, 1, "bfloat16", "") for model in MODELS]
    found += [
        (backend, model, 4, "bfloat16", "batch=2,model=2")
        for backend in backends_with("mesh")
        for model in ("mlp", "resnet18", "gpt-small")
    ]
    return {
        " ".join(filter(None, (backend, model, str(devices), precision, mesh))): RunConfig(
            backend=backend,
            model=model,
            dataset=EXAMPLE[model],
            platform="cuda",
            devices=devices,
            precision=precision,
            mesh=mesh,
            global_batch_size=devices * EXAMPLES.get(model, 256),
            max_steps=5,
        )
        for backend, model, devices, precision, mesh in found
    }


def faults(config: RunConfig, program: Program) -> list[str]:
    """What a program has that it should not have."""
    found = [f"float32: {line}" for line in program.wide] if len(program.wide) > WIDE.get(config.model, 0) else []
    if program.unaliased > UNSHARED_BYTES:
        found.append(f"{program.unaliased:,} bytes of results take no argument's place")
    if abs(program.estimated / program.compiled - 1) > MEMORY_WITHIN:
        found.append(f"{program.compiled:,} bytes, {program.estimated:,} estimated")
    stated = sum(count for calls in program.exchanged.values() for count in calls.values())
    if stated != program.made:
        found.append(f"{stated:,} bytes exchanged are stated, of {program.made:,}")
    return found
