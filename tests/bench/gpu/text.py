"""A language model: it learns, writes, and has the losses of the CPU."""

from __future__ import annotations

import math
import os
from typing import Any

from tests.bench.gpu.box import Box, apart, losses
from tests.bench.gpu.findings import SkipCheck
from tests.bench.gpu.training import AHEAD
from tests.kit.reported import values
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import Metrics, Predictions
from tuiapp.trainers.contract.metrics import TEST_LOSS

CONTEXT, STEPS = 32, 60
LEARNT = 3.0
"""Nats per byte; a model that knows only how frequent each byte is has 3.3."""
COMPARED, WITHIN = 20, 1e-3


def gpt(box: Box) -> None:
    """gpt-small on the text that ships; on the GPU it has the first losses of the CPU."""
    os.environ.update(AHEAD)
    config: dict[str, Any] = {
        "model": "gpt-small", "dataset": "shakespeare", "context": CONTEXT, "optimizer": "sgd", "learning_rate": 0.1,
        "gradient_clip": 1.0, "max_steps": STEPS, "checkpoint_every": 0, "global_batch_size": 16,
    }  # fmt: skip
    able = list(box.able("torch-ddp", "torch-fsdp", "jax-sharding", "keras-jax", "keras-torch"))
    if not able:
        raise SkipCheck("neither PyTorch nor JAX can train here: see doctor")
    configs = {backend: box.config(**config, backend=backend) for backend in able}
    if not box.on_cpu:
        short = {**config, "max_steps": COMPARED}
        configs |= {f"{name} on the CPU": RunConfig(**short, backend=name, platform="cpu", devices=1) for name in able}
    runs = box.train_together(configs)
    for backend in able:
        with box.find.part(backend):
            run = runs[backend]
            (loss,) = values(run.of(Metrics), TEST_LOSS)
            (perplexity,) = values(run.of(Metrics), "test/perplexity")
            box.find.at_most(f"{backend}: test loss, nats per byte", loss, LEARNT, ".3f")
            same = (
                loss is not None and perplexity is not None and math.isclose(perplexity, math.exp(loss), rel_tol=1e-4)
            )
            box.find.holds(f"{backend}: perplexity is e to the power of it", same, perplexity)
            samples = run.of(Predictions)[-1].samples
            box.find.holds(f"{backend}: two texts are written", len(samples) == 2, samples)
            rate = run.end().summary.examples_per_second or 0.0
            box.find.at_least(f"{backend}: tokens/s", CONTEXT * rate, 1, ",.0f")
            if not box.on_cpu:
                far = apart(losses(run), losses(runs[f"{backend} on the CPU"]), COMPARED)
                box.find.at_most(f"{backend}: loss apart from the CPU's in {COMPARED} steps", far, WITHIN, ".1e")
