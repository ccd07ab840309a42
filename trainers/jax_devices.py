"""The devices of a JAX backend, and how its arrays are sharded."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import NamedSharding

from trainers.config.directories import user_cache
from trainers.config.files import make_private
from trainers.config.run_config import RunConfig
from trainers.contract.events import FrameworkMemory, Shard, Sharding
from trainers.data import datasets
from trainers.data.prefetch import prefetch
from trainers.evaluation import WORST, Sums, columns
from trainers.runtime.reporter import Reporter
from trainers.trees import leaf_name

EVAL_BATCH = 1024
STEPS_IN_FLIGHT = 8
"""Enough to keep the devices busy, few enough to stop soon and to hold little memory."""
COMPILED_BYTES = 1 << 30
"""Size of the compilation cache; the least recently read goes first."""
PRECISIONS = {"float32": "highest", "tf32": "tensorfloat32", "bfloat16": "default"}
"""Configuration key → JAX's matmul precision. On GPUs JAX's own default for float32 is TF32."""

Batch: TypeAlias = tuple[Array, Array]
"""Images, float32, and labels, int32."""

TestBatch: TypeAlias = tuple[Array, Array, Array]
"""Images, labels and the examples' numbers in the test set, −1 for padding; split over the devices."""


def pick_devices(config: RunConfig, report: Reporter) -> list[jax.Device]:
    """Returns this run's devices, all owned by this process, and sets their arithmetic."""
    jax.config.update("jax_default_matmul_precision", PRECISIONS[config.precision])
    keep_what_is_compiled()
    devices: list[jax.Device] = jax.local_devices()[: config.devices]
    if len(devices) < config.devices:
        raise RuntimeError(f"JAX sees {len(devices)} devices of the {config.devices} that the run wants")
    for number, device in enumerate(devices):
        kind, uuid = (device.device_kind, config.device_ids[number]) if config.platform == "cuda" else ("", "")
        report.rank_started(str(device), kind, uuid, number)
    if config.platform == "cuda":
        report.memory = lambda: framework_memory(devices)
    # One transfer for many steps, each a float32 [devices].
    report.convert = lambda losses: np.stack(jax.device_get(losses)).tolist()
    return devices


def keep_what_is_compiled() -> None:
    """Enables JAX's compilation cache: compiling then takes a second instead of many.

    A directory that the user gave JAX (JAX_COMPILATION_CACHE_DIR) is used as it is; ours is limited in size.
    """
    given = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    ours = user_cache() / "jax"
    jax.config.update("jax_compilation_cache_dir", given or str(ours))
    if not given:
        # If it cannot be created JAX reports it, and compiles again.
        with contextlib.suppress(OSError):
            make_private(ours)
        if importlib.util.find_spec("filelock"):
            # Without it JAX can keep no limit.
            jax.config.update("jax_compilation_cache_max_size", COMPILED_BYTES)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def framework_memory(devices: Sequence[jax.Device]) -> list[FrameworkMemory]:
    """What JAX's allocator holds of each device; devices that do not report it, such as the CPU, are skipped."""
    samples = []
    for rank, device in enumerate(devices):
        if stats := device.memory_stats():
            samples.append(
                FrameworkMemory(
                    rank=rank,
                    used_bytes=stats.get("bytes_in_use"),
                    peak_bytes=stats.get("peak_bytes_in_use"),
                    # Three quarters of the GPU from the start, unless JAX is configured otherwise.
                    reserved_bytes=stats.get("pool_bytes"),
                    limit_bytes=stats.get("bytes_limit"),
                )
            )
    return samples


def scale(images: Array) -> Array:
    """Scales uint8, 0 to 255, to float32, 0 to 1; float32 is unchanged."""
    return images.astype(jnp.float32) / 255 if images.dtype == jnp.uint8 else images


class TrainingSet:
    """The training set on every device, for a program that indexes it; or its batches, read ahead and split.

    `put_whole` puts arrays on every device. With `axis` a batch gets a leading axis of so many devices, as in pmap.
    """

    def __init__(
        self,
        arrays: datasets.Arrays | datasets.StoredArrays,
        split: NamedSharding,
        put_whole: Callable[[tuple[Any, Any]], tuple[Any, Any]],
        axis: int | None = None,
    ) -> None:
        self._images, self._labels = arrays.x_train, arrays.y_train.astype(np.int32)
        self._split, self._axis = split, axis
        self._whole = None if isinstance(arrays, datasets.StoredArrays) else put_whole((self._images, self._labels))

    def place(self, order: datasets.Rows) -> Iterable[Any]:
        """What `arguments` takes for each step, given example numbers, int64 [steps, global batch]."""
        return iter(order) if self._whole else prefetch(order, self._read)

    def arguments(self, placed: Any) -> tuple[Any, Any, Any]:
        """Images and labels, and the numbers of the batch's examples among them; None if they are the batch."""
        return (*self._whole, self._on_axis(placed)) if self._whole else (*placed, None)

    def first(self, count: int) -> tuple[Any, Any, Any]:
        """Arguments for a batch of the first examples."""
        return self.arguments(next(iter(self.place(np.arange(count)[None]))))

    def _read(self, rows: datasets.Rows) -> Any:
        return jax.device_put((self._on_axis(self._images[rows]), self._on_axis(self._labels[rows])), self._split)

    def _on_axis(self, array: Any) -> Any:
        return array if self._axis is None else array.reshape(self._axis, -1, *array.shape[1:])


class TestSet:
    """The test set in batches that split evenly: on the devices, or read each time."""

    def __init__(
        self,
        arrays: datasets.Arrays | datasets.StoredArrays,
        devices: int,
        split: NamedSharding,
        axis: int | None = None,
    ) -> None:
        self._arrays, self._split, self._axis = arrays, split, axis
        self._batch_size = -(-min(EVAL_BATCH, len(arrays.y_test)) // devices) * devices
        self._put = None if isinstance(arrays, datasets.StoredArrays) else list(self._batches())

    def __iter__(self) -> Iterator[TestBatch]:
        return iter(self._put) if self._put is not None else self._batches()

    def _batches(self) -> Iterator[TestBatch]:
        for x, y, numbers in datasets.numbered_batches(self._arrays.x_test, self._arrays.y_test, self._batch_size):
            batch: tuple[Any, ...] = (x, y.astype(np.int32), numbers)
            if self._axis is not None:
                batch = tuple(one.reshape(self._axis, -1, *one.shape[1:]) for one in batch)
            yield jax.device_put(batch, self._split)


def evaluate(eval_step: Callable[..., Array], state: Any, batches: Iterable[TestBatch], classes: int) -> Sums:
    """Sums over the test set of what `eval_step` returns for a batch: `sum_up`'s, or those of each device."""
    found: list[Array] = []
    for batch in batches:
        found.append(eval_step(state, *batch))
        # Few of the calls wait for the devices at a time.
        if len(found) > STEPS_IN_FLIGHT:
            jax.block_until_ready(found[-STEPS_IN_FLIGHT - 1])
    sums = np.stack(jax.device_get(found)).astype(np.float64)
    sums = sums.reshape(-1, sums.shape[-1])
    end = 1 + classes * columns(classes)
    return np.concatenate([sums[:, :end].sum(0), sums[:, end:].ravel()])


def sum_up(losses: Array, logits: Array, y: Array, numbers: Array) -> Array:
    """Sums over a batch: see `trainers.evaluation`; float32, exact for the counts of a batch.

    `losses`, labels `y` and the examples' `numbers` are [batch], `logits` [batch, classes]; a number of −1 leaves an
    example out.
    """
    counted = numbers >= 0
    losses = jnp.where(counted, losses, 0)
    predicted = logits.argmax(axis=1)
    classes = logits.shape[1]
    width = columns(classes)
    places = predicted if width == classes else predicted != y
    counts = jnp.zeros(classes * width).at[y * width + places].add(counted)
    highest, found = jax.lax.top_k(losses, min(WORST, len(losses)))
    worst = jnp.stack([highest, numbers[found], y[found], predicted[found]], axis=1)
    return jnp.concatenate([losses.sum()[None], counts, worst.ravel()])


def report_sharding(report: Reporter, parameters: Any, optimizer_state: Any, x: Array, y: Array) -> None:
    """Reports how the batch, its labels, the largest parameter and its optimizer state are sharded over the devices.

    A parameter's state has its path in `optimizer_state`, below the field's name:
    `.inner_state[1].mu['fc1']['kernel']`. `x` and `y` are a global batch.
    """
    _report_array(report, "batch", x)
    _report_array(report, "labels", y)
    leaves = jax.tree_util.tree_leaves_with_path(parameters)
    largest_path, largest = max(leaves, key=lambda item: item[1].size)
    _report_array(report, f"parameter {leaf_name(largest_path)}", largest)
    for path, array in jax.tree_util.tree_leaves_with_path(optimizer_state):
        if path[-len(largest_path) :] == largest_path and array.shape == largest.shape:
            field = leaf_name(path[-len(largest_path) - 1 : -len(largest_path)])
            _report_array(report, f"optimizer {field} of {leaf_name(largest_path)}", array)


def _report_array(report: Reporter, name: str, array: Array) -> None:
    sharding = array.sharding
    assert isinstance(sharding, jax.sharding.NamedSharding)
    shards = [
        Shard(
            rank=sharding.mesh.devices.flatten().tolist().index(shard.device),
            device=str(shard.device),
            index=[part.indices(size)[:2] for part, size in zip(shard.index, array.shape, strict=True)],
            bytes=shard.data.nbytes,
        )
        for shard in array.addressable_shards
    ]
    spec: list[Any] = [*sharding.spec, *[None] * (array.ndim - len(sharding.spec))]
    mesh = {str(axis): size for axis, size in sharding.mesh.shape.items()}
    report.send(
        Sharding(array=name, shape=list(array.shape), dtype=str(array.dtype), mesh=mesh, spec=spec, shards=shards)
    )
