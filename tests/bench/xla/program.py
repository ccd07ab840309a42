"""Compiles one configuration's training step for H100s, without a GPU or a driver, and prints what is in it.

`python -m tests.bench.xla.program CONFIG [FILE]`: from a JSON object of configuration keys to one of `Program`. The
compiled program's text goes to FILE.

The backend's own `train` runs up to its compiled step. Its devices are those of a topology, which hold no arrays: what
is put on them becomes shape, type and sharding, which is all that a compiler needs.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

os.environ |= {
    "JAX_PLATFORMS": "cpu",
    # Its entries cannot be read without a GPU.
    "JAX_ENABLE_COMPILATION_CACHE": "false",
    "KERAS_BACKEND": "jax",
    # In place of the GPUs' UUIDs, which the backend tells of each device.
    "CUDA_VISIBLE_DEVICES": "0,1,2,3",
}

import jax
import msgspec
from jax.experimental import topologies
from jax.sharding import NamedSharding

from tests.bench.xla.programs import Program
from tests.kit.recorder import Recorder, Shelf
from tuiapp.trainers.config.catalog import BACKENDS, HALF
from tuiapp.trainers.config.memory import estimate_memory
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.frameworks.jax.mesh import ARRAY, COLLECTIVES, array_bytes, exchanged
from tuiapp.trainers.frameworks.jax.profile import step_memory
from tuiapp.trainers.rank.checkpoints import Checkpoints
from tuiapp.trainers.rank.reporter import Reporter

H100 = """gpu_device_info {
  cuda_compute_capability { major: 9 minor: 0 }
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128 block_dim_limit_x: 2147483647 block_dim_limit_y: 65535
  block_dim_limit_z: 65535 memory_bandwidth: 3352320000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: 84978434048 shared_memory_per_block_optin: 232448 registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 19 patch: 0 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
_MADE = re.compile(r"%(?P<name>[\w.-]+) = \(?(?P<dtype>[a-z]+[0-9]*)\[(?P<shape>[0-9,]*)\]")
_PRODUCT = re.compile(
    r"= \(?(?P<made>\w+)\[.* (?:dot|convolution|custom-call)\((?P<operands>%[^)]*)\)"
    r'(?!.*custom_call_target="(?!__cudnn|__cublas))'
)
_COLLECTIVE_MADE = re.compile(rf"= (?P<made>.*?) (?:{'|'.join(COLLECTIVES)})(?:-done)?\(")


class Compiled(Exception):
    """Ends a backend's `train` at its compiled step, which it carries, with the seconds that compiling took."""


class Timed(Recorder):
    began = 0.0

    def phase(self, phase: str) -> None:
        self.began = time.monotonic()


def compiled_step(config: RunConfig) -> tuple[jax.stages.Compiled, float]:
    """The backend's step, and the seconds that compiling it took."""
    # Finds the plugin.
    jax.devices()
    topology = {"target_config": H100, "topology": f"1x1x{config.devices}"}
    devices = topologies.get_topology_desc(topology_name="", platform="cuda", **topology).devices
    stand_ins: dict[str, Callable[..., Any]] = {
        "local_devices": lambda: devices,
        "default_backend": lambda: "gpu",
        "make_array_from_process_local_data": abstract,
        "make_array_from_callback": lambda shape, sharding, part: abstract(sharding, part((slice(None),) * len(shape))),
    }
    for name, stand_in in stand_ins.items():
        setattr(jax, name, stand_in)
    backend: Any = importlib.import_module(BACKENDS[config.backend].module)
    recorder = Timed()

    def stop(step: jax.stages.Compiled) -> None:
        raise Compiled(step, time.monotonic() - recorder.began)

    backend.step_memory = stop
    try:
        backend.train(make_plan(config), 0, cast(Reporter, recorder), cast(Checkpoints, Shelf()))
    except Compiled as reached:
        step, seconds = reached.args
    return step, seconds


def abstract(sharding: NamedSharding, tree: Any) -> Any:
    """Shapes, types and shardings in place of arrays on devices."""

    def leaf(array: Any) -> jax.ShapeDtypeStruct:
        # As arrays on devices have them, doubles are float32.
        return jax.ShapeDtypeStruct(array.shape, jax.dtypes.canonicalize_dtype(array.dtype), sharding=sharding)

    return jax.tree.map(leaf, tree)


def wide_products(text: str) -> list[str]:
    """The matrix products and convolutions of a program that take float32."""
    dtypes = {match["name"]: match["dtype"] for match in _MADE.finditer(text)}
    found = []
    for line in text.splitlines():
        if match := _PRODUCT.search(line):
            operands = re.findall(r"%([\w.-]+)", match["operands"])[:2]
            if "f32" in (dtypes[name] for name in operands):
                found.append(line.strip()[:160])
    return found


def collectives_make(text: str) -> int:
    """The bytes of the arrays that a program's collectives make, by what is there when they are done."""
    return sum(array_bytes(*array) for made in _COLLECTIVE_MADE.findall(text) for array in ARRAY.findall(made))


def main() -> None:
    """Compile, examine and print."""
    config = msgspec.json.decode(sys.argv[1], type=RunConfig)
    step, seconds = compiled_step(config)
    text = step.as_text()
    assert text is not None
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(text)
    memory = step_memory(step)
    assert memory is not None
    program = Program(
        seconds=seconds,
        estimated=estimate_memory(config).total,
        compiled=memory.total,
        exchanged=exchanged(text),
        made=collectives_make(text),
        wide=wide_products(text) if config.precision in HALF else [],
        unaliased=memory.outputs - memory.aliased,
    )
    print(msgspec.json.encode(program).decode())


if __name__ == "__main__":
    main()
