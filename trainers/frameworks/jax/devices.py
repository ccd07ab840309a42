"""The devices of a JAX backend, and how its arrays are sharded."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat
from math import ceil, prod
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array
from jax.experimental import multihost_utils
from jax.extend.backend import register_backend_factory
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tuiapp.trainers.config.files import make_private, user_cache
from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import FrameworkMemory, Shard, Sharding
from tuiapp.trainers.frameworks.jax.losses import Losses
from tuiapp.trainers.frameworks.jax.profile import JaxProfiler
from tuiapp.trainers.rank.evaluation import WORST, Sums, batch_size, columns
from tuiapp.trainers.rank.loop import STEPS_IN_FLIGHT
from tuiapp.trainers.rank.reporter import Reporter
from tuiapp.trainers.rank.schedules import learning_rate
from tuiapp.trainers.sources import datasets
from tuiapp.trainers.sources.arrays import prefetch
from tuiapp.trainers.sources.augmentation import Order, draws, examples, with_draws
from tuiapp.trainers.tasks.catalog import Predict

COMPILED_BYTES = 1 << 30
"""Size of the compilation cache; the least recently read goes first."""
HEARTBEAT_MARGIN_S = 10
"""Seconds after a node's grace: the run has ended by then with its name, JAX's abort is for what nobody else sees."""
PRECISIONS = {"float32": "highest", "tf32": "tensorfloat32", "bfloat16": "default", "float16": "default"}
"""Configuration key → JAX's matmul precision. On GPUs JAX's own default for float32 is TF32."""

Batch: TypeAlias = tuple[Array, Array]
"""Images, float32, or tokens, int32, and labels, int32, or of mixtures float32 [batch, classes]."""

TrainingBatch: TypeAlias = tuple[Array, Array, Array | dict[str, Array] | None, Array]
"""What a step takes beside its state: all images and labels, an epoch's example numbers, int32 [steps, batch], and its
learning rates, float32 [steps]. Without numbers the images and labels are those of the step's batch.

With augmentation there are in place of the numbers "examples" and what is drawn for them, each [steps, batch]; or only
what is drawn, [batch], where the images are those of the batch. In a mixture each is [batch, 2].
"""

TestBatch: TypeAlias = tuple[Array, Array, Array]
"""Images, labels and the examples' numbers in the test set, −1 for padding; split over the devices."""


def pick_devices(plan: Plan, report: Reporter) -> list[jax.Device]:
    """Returns this run's devices, node by node, and sets their arithmetic; this process owns its node's."""
    config = plan.config
    jax.config.update("jax_default_matmul_precision", PRECISIONS[config.precision])
    enable_compilation_cache()
    connect(config)
    wanted = plan.devices_of(jax.process_index())
    devices: list[jax.Device] = jax.local_devices()[:wanted]
    if len(devices) < wanted:
        raise RuntimeError(f"JAX sees {len(devices)} devices of the {wanted} that the run wants")
    first = plan.ranks_of(jax.process_index())[0]
    uuids = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    for number, device in enumerate(devices):
        kind, uuid = (device.device_kind, uuids[number]) if config.platform == "cuda" else ("", "")
        report.rank_started(str(device), kind, uuid, first + number)
    report.profiler = JaxProfiler(devices, first)
    if config.platform == "cuda":
        report.memory = lambda: framework_memory(devices, first)
    # One transfer for many steps, each a float32 [devices], or [].
    report.convert = lambda losses: [
        np.hstack(parts).tolist() if len(parts) > 1 else parts[0].tolist()
        for parts in jax.device_get([*map(of_this_process, losses)])
    ]
    # Ids have gaps between processes.
    return devices if config.nodes == 1 else by_process()


def connect(config: RunConfig) -> None:
    """Joins the processes of the other nodes; before JAX is asked for any device."""
    if config.nodes == 1:
        return
    address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    # A cluster's proxy, which `http_proxy` names, does not reach its own nodes.
    os.environ["no_grpc_proxy"] = os.environ["MASTER_ADDR"]  # noqa: SIM112
    # Its handler of SIGTERM would leave this process alive.
    jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(
        address,
        config.nodes,
        int(os.environ["RANK"]),
        # Slurm's variables, which it would follow, count other processes.
        cluster_detection_method="deactivate",
        # By default any interface.
        coordinator_bind_address=address,
        heartbeat_timeout_seconds=ceil(config.node_grace_s) + HEARTBEAT_MARGIN_S,
    )
    if config.platform == "cpu":
        # JAX would take the address of the machine's name, which Debian maps to loopback, and has no setting for it.
        # These names are private: another version of JAX may lack them, and must still run on one machine.
        from jax._src import distributed, xla_bridge
        from jaxlib import _jax

        collectives = _jax.make_gloo_tcp_collectives(
            distributed.global_state.client, interface=os.environ.get("GLOO_SOCKET_IFNAME")
        )
        make_client = partial(xla_bridge.make_cpu_client, collectives)
        register_backend_factory("cpu", make_client, priority=0, fail_quietly=False)


def steps_in_flight(config: RunConfig) -> dict[str, Any]:
    """Returns how `training` waits for steps, and for how many at most.

    Virtual devices of the CPU compute them within the call that gives the next: several that were done by then would
    be reported as one long step and some of no time.
    """
    return {"wait": jax.block_until_ready, "limit": STEPS_IN_FLIGHT if config.platform == "cuda" else 1}


def donated(config: RunConfig) -> tuple[int, ...]:
    """Returns the arguments whose memory a step takes for its results: on a GPU the state.

    On the CPU that made steps of `resnet18` on two devices 5 to 20 % longer, and others no shorter.
    """
    return (0,) if config.platform == "cuda" else ()


def by_process() -> list[jax.Device]:
    """Returns the devices of all processes, in the order of these."""
    return sorted(jax.devices(), key=lambda device: (device.process_index, device.id))


def of_this_process(array: Array) -> list[Array]:
    """Returns the parts of an array [devices] on this process's devices, in their order; one if it has the whole."""
    is_whole = array.is_fully_addressable or array.is_fully_replicated
    return [array] if is_whole else [shard.data for shard in array.addressable_shards]


def own_rows(size: int, split: NamedSharding) -> slice:
    """Returns the rows of this process's devices, of so many that are split; several processes may have the same."""
    if jax.process_count() == 1:
        return slice(0, size)
    parts = [index[0].indices(size) for index in split.addressable_devices_indices_map((size,)).values() if index]
    return slice(min(start for start, _, _ in parts), max(stop for _, stop, _ in parts))


def own_part(array: Any, split: NamedSharding) -> Any:
    """Returns this process's part of an array that is split."""
    return array[own_rows(len(array), split)]


def put(tree: Any, sharding: NamedSharding) -> Any:
    """Puts arrays on the devices without communication, given what this process's devices get of each."""
    if sharding.is_fully_replicated or jax.process_count() == 1:
        return jax.make_array_from_process_local_data(sharding, tree)
    # The processes may have unequal parts.
    count = jax.device_count()
    rows = own_rows(count, sharding)
    return jax.tree.map(
        lambda part: jax.make_array_from_process_local_data(
            sharding, part, (len(part) * count // (rows.stop - rows.start), *part.shape[1:])
        ),
        tree,
    )


def to_host(array: Any) -> npt.NDArray[Any]:
    """Returns a copy of an array on the host, whole; all processes call it, as it may be split over them."""
    if isinstance(array, Array) and not (array.is_fully_addressable or array.is_fully_replicated):
        gathered: npt.NDArray[Any] = multihost_utils.process_allgather(array, tiled=True)
        return gathered
    # A view of an array whose buffer the next step takes over would change while it is read.
    return np.array(array)


def broadcast_from_first(tree: Any) -> Any:
    """Returns a tree's arrays as the first process has them, copied to the host of each.

    Initialization may differ between processors, and in a model of the user's own between processes.
    """
    tree = jax.tree.map(np.array, tree)
    if jax.process_count() == 1:
        return tree
    # Not by JAX's own `broadcast_one_to_all`: that wants as many devices in each process.
    mesh, count = Mesh(np.array(by_process()), ("device",)), jax.local_device_count()
    stacked = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (count, *leaf.shape)), tree)
    first = jax.jit(lambda tree: jax.tree.map(lambda leaf: leaf[0], tree), out_shardings=NamedSharding(mesh, P()))
    return jax.tree.map(np.array, first(put(stacked, NamedSharding(mesh, P("device")))))


def enable_compilation_cache() -> None:
    """Enables JAX's compilation cache: compiling then takes a second instead of many.

    A directory that the user gave JAX (JAX_COMPILATION_CACHE_DIR) is used as it is; ours is limited in size.
    """
    chosen = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    ours = user_cache() / "jax"
    jax.config.update("jax_compilation_cache_dir", chosen or str(ours))
    if not chosen:
        # If it cannot be created JAX reports it, and compiles again.
        with contextlib.suppress(OSError):
            make_private(ours)
        if importlib.util.find_spec("filelock"):
            # Without it JAX can keep no limit.
            jax.config.update("jax_compilation_cache_max_size", COMPILED_BYTES)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def framework_memory(devices: Sequence[jax.Device], first: int = 0) -> list[FrameworkMemory]:
    """Returns what JAX's allocator holds of each device, the first of which is rank `first`.

    Devices that do not report it, such as the CPU, are skipped.
    """
    samples = []
    for rank, device in enumerate(devices, start=first):
        if stats := device.memory_stats():
            samples.append(
                FrameworkMemory(
                    rank=rank,
                    used_bytes=stats.get("bytes_in_use"),
                    peak_bytes=stats.get("peak_bytes_in_use"),
                    # From the start all that it may take: the plan's share of the GPU, or three quarters of it.
                    reserved_bytes=stats.get("pool_bytes"),
                    limit_bytes=stats.get("bytes_limit"),
                )
            )
    return samples


def scale(images: Array) -> Array:
    """Scales uint8, 0 to 255, to float32, 0 to 1; float32 is unchanged."""
    return images.astype(jnp.float32) / 255 if images.dtype == jnp.uint8 else images


def as_inputs(stored: Array) -> Array:
    """Returns what a model takes, of images or of windows of tokens, uint8 [N, context]."""
    return stored.astype(jnp.int32) if stored.ndim == 2 else scale(stored)


def as_batch(stored: Array, labels: Array) -> Batch:
    """Returns what a model takes, and labels as int32."""
    return as_inputs(stored), labels.astype(jnp.int32)


class TrainingSet:
    """The training set on every device, for a program that indexes it; or its batches, read ahead and split.

    Each epoch's order and learning rates are put on the devices at once, where a step finds its own by the steps made
    before it (`of_step`): nothing is sent to them at each step.

    `put_whole` puts arrays on every device; the run goes on after `done` steps. With `axis` a batch gets a leading axis
    of so many devices, this process's, as in pmap.
    """

    def __init__(
        self,
        plan: Plan,
        arrays: datasets.Arrays | datasets.StoredArrays,
        split: NamedSharding,
        put_whole: Callable[[Any], Any],
        done: int,
        axis: int | None = None,
    ) -> None:
        self._plan, self._split, self._put_whole, self._done, self._axis = plan, split, put_whole, done, axis
        # A text's stay bytes.
        labels = arrays.y_train if arrays.y_train.dtype == np.uint8 else arrays.y_train.astype(np.int32)
        self._images, self._labels = arrays.x_train, labels
        self._whole = None if isinstance(arrays, datasets.StoredArrays) else put_whole((self._images, self._labels))

    def place(self, order: Order) -> Iterable[TrainingBatch]:
        """Returns what each of the next steps takes, all of one epoch, given example numbers, [steps, global batch]."""
        first, self._done = self._done, self._done + len(order)
        return self._batches(order, first)

    def example(self) -> TrainingBatch:
        """Returns what a step takes, for its compiler."""
        rows = np.arange(self._plan.config.global_batch_size)[None]
        return next(iter(self._batches(with_draws(self._plan, 1, 1, rows), self._done)))

    def _batches(self, order: Order, done: int) -> Iterator[TrainingBatch]:
        rates = np.array([learning_rate(self._plan, done + number) for number in range(1, len(order) + 1)])
        rates = self._put_whole(self._in_epoch(rates, done))
        if not self._whole:
            return ((*batch, rates) for batch in prefetch(order, self._read))
        epoch = self._in_epoch(order, done)
        if self._axis is None:
            numbers = self._put_whole(_numbers(epoch))
        else:
            part = own_part(epoch.T, self._split).reshape(self._axis, -1, len(epoch))
            numbers = put(_numbers(part.swapaxes(1, 2)), self._split)
        return repeat((*self._whole, numbers, rates), len(order))

    def _in_epoch(self, values: npt.NDArray[Any], done: int) -> npt.NDArray[Any]:
        """Returns values of the steps after `done`, one each, at their places in their whole epoch, of zeros elsewhere.

        Compiled for one shape, a step takes the epochs that a resumed run begins in, or ends in, too.
        """
        steps = self._plan.steps_per_epoch
        epoch = np.zeros((steps, *values.shape[1:]), values.dtype)
        epoch[done % steps :][: len(values)] = values
        return epoch

    def _read(self, order: Order) -> Any:
        order = own_part(order, self._split)
        rows = examples(order)
        images = self._images[rows.ravel()].reshape(*rows.shape, *self._images.shape[1:])
        batch = images, self._labels[rows], draws(order) or None
        return put(jax.tree.map(self._on_axis, batch), self._split)

    def _on_axis(self, array: Any) -> Any:
        return array if self._axis is None else array.reshape(self._axis, -1, *array.shape[1:])


def _numbers(order: Order) -> Any:
    """Returns example numbers as a step takes them, int32, or with them what is drawn, by name."""
    numbers = examples(order).astype(np.int32)
    return numbers if order.dtype.names is None else {"examples": numbers, **draws(order)}


def of_step(epoch: Array, done: int | Array) -> Array:
    """Returns what an epoch's values, [steps, …], are at the step of a run that comes after `done`."""
    value: Array = jax.lax.dynamic_index_in_dim(epoch, done % len(epoch), keepdims=False)
    return value


class TestSet:
    """The test set in batches that split evenly: on the devices, or read each time."""

    def __init__(
        self,
        arrays: datasets.Arrays | datasets.StoredArrays,
        plan: Plan,
        devices: int,
        split: NamedSharding,
        axis: int | None = None,
    ) -> None:
        self._arrays, self._split, self._axis = arrays, split, axis
        most = batch_size(plan, devices)
        self._batch_size = -(-min(most, len(arrays.y_test)) // devices) * devices
        self._put = None if isinstance(arrays, datasets.StoredArrays) else list(self._batches())

    def __iter__(self) -> Iterator[TestBatch]:
        return iter(self._put) if self._put is not None else self._batches()

    def _batches(self) -> Iterator[TestBatch]:
        arrays, part = self._arrays, own_rows(self._batch_size, self._split)
        for x, y, numbers in datasets.numbered_batches(arrays.x_test, arrays.y_test, self._batch_size, part):
            batch: tuple[Any, ...] = (x, y.astype(np.int32), numbers)
            if self._axis is not None:
                batch = tuple(array.reshape(self._axis, -1, *array.shape[1:]) for array in batch)
            yield put(batch, self._split)


def evaluate(
    eval_step: Callable[..., Array], state: Any, batches: Iterable[TestBatch], classes: int, losses: Losses
) -> Sums:
    """Returns sums over the test set of what `eval_step` returns for a batch: `sum_up`'s, or those of each device."""
    results: list[Array] = []
    for batch in batches:
        results.append(eval_step(state, *batch))
        # Few of the calls wait for the devices at a time.
        if len(results) > STEPS_IN_FLIGHT:
            jax.block_until_ready(results[-STEPS_IN_FLIGHT - 1])
    sums = np.stack(jax.device_get(results))
    if sums.ndim > 2:
        # Of this process's devices: [batches, devices, n].
        sums = np.concatenate(multihost_utils.process_allgather(sums), axis=1)
    sums = sums.astype(np.float64).reshape(-1, sums.shape[-1])
    end = 1 + len(losses.own.figures) + classes * columns(classes)
    return np.concatenate([sums[:, :end].sum(0), sums[:, end:].ravel()])


@jax.jit
def _flax_logits(state: Any, tokens: Array) -> Array:
    logits: Array = state.apply_fn(
        {"params": state.params, "batch_stats": state.batch_stats}, tokens.astype(jnp.int32), train=False
    )
    return logits


def predictor(
    state: Any, replica_of: Callable[[Any], Any] = lambda state: state, logits_of: Callable[..., Array] = _flax_logits
) -> Predict:
    """Returns the model as a task asks it: from tokens, uint8 [n, context], to logits, float32 [n, context, classes].

    `replica_of` gives one replica of a state, `logits_of` the logits of a replica and tokens.
    """
    state = replica_of(state)

    def predict(tokens: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        return to_host(logits_of(state, tokens))

    return predict


def sum_up(losses_of: Losses, logits: Array, y: Array, numbers: Array) -> Array:
    """Returns sums over a batch: see `tuiapp.trainers.rank.evaluation`; float32, exact for the counts of a batch.

    Labels `y` and the examples' `numbers` are [batch], `logits` [batch, classes]; a number of −1 leaves an example out.
    Examples of many labels each have another axis of these, after the first, but for the numbers.
    """
    losses, figures = losses_of.each(logits, y), losses_of.figures(logits, y)
    per_example = prod(y.shape[1:])
    numbers = jnp.where(numbers[:, None] < 0, -1, numbers[:, None] * per_example + jnp.arange(per_example))
    losses, logits, y, numbers = losses.ravel(), logits.reshape(-1, logits.shape[-1]), y.ravel(), numbers.ravel()
    counted = numbers >= 0
    losses = jnp.where(counted, losses, 0)
    totals = [jnp.where(counted, values.ravel(), 0).sum()[None] for values in figures]
    predicted = logits.argmax(axis=1)
    classes = logits.shape[1]
    width = columns(classes)
    places = predicted if width == classes else predicted != y
    counts = jnp.zeros(classes * width).at[y * width + places].add(counted)
    highest, indices = jax.lax.top_k(losses, min(WORST, len(losses)))
    worst = jnp.stack([highest, numbers[indices], y[indices], predicted[indices]], axis=1)
    return jnp.concatenate([losses.sum()[None], *totals, counts, worst.ravel()])


def report_sharding(report: Reporter, parameters: Any, optimizer_state: Any, x: Array, y: Array) -> None:
    """Reports how the batch, its labels, the largest parameter and its optimizer state are sharded over the devices.

    A parameter's state has its path in `optimizer_state`, below the field's name:
    `.inner_state[1].mu['fc1']['kernel']`. `x` and `y` are a global batch.
    """
    report_array(report, "batch", x)
    report_array(report, "labels", y)
    leaves = jax.tree_util.tree_leaves_with_path(parameters)
    largest_path, largest = max(leaves, key=lambda item: item[1].size)
    report_array(report, f"parameter {leaf_name(largest_path)}", largest)
    for path, array in jax.tree_util.tree_leaves_with_path(optimizer_state):
        if path[-len(largest_path) :] == largest_path and array.shape == largest.shape:
            field = leaf_name(path[-len(largest_path) - 1 : -len(largest_path)])
            report_array(report, f"optimizer {field} of {leaf_name(largest_path)}", array)


def report_array(report: Reporter, name: str, array: Array, why_whole: str = "") -> None:
    """Reports how an array lies on the devices, and why it is whole where it might be split."""
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
    shape, dtype = list(array.shape), str(array.dtype)
    report.send(
        Sharding(array=name, shape=shape, dtype=dtype, mesh=mesh, spec=spec, shards=shards, why_whole=why_whole)
    )


def by_name(tree: Any) -> dict[str, Array]:
    """Returns a tree's arrays under the dotted names of their paths."""
    return {leaf_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def named_leaves(tree: Any) -> dict[str, npt.NDArray[Any]]:
    """Copies of a tree's arrays on the host, under the dotted names of their paths."""
    return {name: to_host(leaf) for name, leaf in by_name(tree).items()}


def fill(tree: Any, arrays: Mapping[str, npt.NDArray[Any]]) -> Any:
    """Fills a tree with arrays of `named_leaves`; raises ValueError if one is missing, or has another shape."""

    def leaf(path: tuple[Any, ...], like: Any) -> npt.NDArray[Any]:
        array = arrays.get(leaf_name(path))
        if array is None or array.shape != like.shape:
            problem = "missing" if array is None else f"of shape {array.shape}, not {like.shape}"
            raise ValueError(f"the checkpoint does not fit: {leaf_name(path)} is {problem}")
        return array.astype(like.dtype)

    return jax.tree_util.tree_map_with_path(leaf, tree)


def leaf_name(path: tuple[Any, ...]) -> str:
    """Returns the keys of a path in a tree, joined by dots."""
    return ".".join(str(getattr(key, "key", getattr(key, "name", key))) for key in path)
