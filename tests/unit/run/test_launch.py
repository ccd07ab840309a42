"""What is refused at launch, before anything is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.machine import Gpu, Machine
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.launch import launch

MACHINE = Machine(cpu_cores=8, memory_total_bytes=1 << 34, gpus=(Gpu(index=0, uuid="GPU-1", name="H200"),))


@pytest.mark.parametrize(("backend", "words"), [("torch-ddp", "is a build for CPUs"), ("jax-pmap", "without CUDA")])
def test_gpus_that_the_installed_framework_cannot_use(backend: str, words: str, tmp_path: Path) -> None:
    if not BACKENDS[backend].without_gpus():
        pytest.skip("the installed framework can use GPUs")
    with pytest.raises(ConfigError, match=rf"platform: {backend} cannot use .*{words}.*; or use platform cpu"):
        launch(RunConfig(backend=backend, model="mlp"), tmp_path / "runs", MACHINE)
    assert not (tmp_path / "runs").exists()
