"""What the PyTorch backends share: devices, process group, optimizer, data, evaluation, reports of layouts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from inspect import signature
from itertools import repeat
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from tuiapp.trainers.config.normalization import Normalization
from tuiapp.trainers.config.options import hang_limit_s
from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import FrameworkMemory, Shard, Sharding
from tuiapp.trainers.frameworks.torch import models as torch_models
from tuiapp.trainers.frameworks.torch.copies import Copies, Filled, change, mix
from tuiapp.trainers.frameworks.torch.losses import Losses, LossScale, by_type, flatten
from tuiapp.trainers.frameworks.torch.profile import TorchProfiler, collectives
from tuiapp.trainers.rank.evaluation import WORST, Sums, batch_size, columns
from tuiapp.trainers.rank.layouts import layout
from tuiapp.trainers.rank.reporter import Reporter
from tuiapp.trainers.run.watchdog import PHASE_LIMITS_S
from tuiapp.trainers.sources import augmentation, datasets
from tuiapp.trainers.sources.arrays import StoredImages, prefetch
from tuiapp.trainers.tasks.catalog import Predict

HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def pick_device(config: RunConfig, report: Reporter) -> torch.device:
    """Returns this rank's device, and sets its arithmetic."""
    set_arithmetic(config, report)
    if config.platform == "cpu":
        report.rank_started("cpu")
        report.profiler = TorchProfiler({report.rank: torch.device("cpu")})
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    report.profiler = TorchProfiler({report.rank: device})
    torch.cuda.set_device(device)
    properties = torch.cuda.get_device_properties(device)
    # CUDA numbers the GPUs in the order of this variable's UUIDs.
    uuids = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
    report.rank_started(str(device), properties.name, uuids[device.index])
    report_memory(report, {int(os.environ["RANK"]): device})
    return device


def pick_devices(config: RunConfig, report: Reporter) -> list[torch.device]:
    """Returns this run's devices, all owned by this process, and sets their arithmetic."""
    set_arithmetic(config, report)
    if config.platform == "cpu":
        report.rank_started("cpu", number=0)
        report.profiler = TorchProfiler({0: torch.device("cpu")})
        return [torch.device("cpu")]
    devices = [torch.device("cuda", number) for number in range(config.devices)]
    report.profiler = TorchProfiler(dict(enumerate(devices)))
    for number, device in enumerate(devices):
        name = torch.cuda.get_device_properties(device).name
        report.rank_started(str(device), name, config.device_ids[number], number)
    report_memory(report, dict(enumerate(devices)))
    return devices


def report_memory(report: Reporter, devices: dict[int, torch.device]) -> None:
    """Makes the reporter send what PyTorch's allocator holds of each rank's GPU."""
    peaks: dict[int, int] = {}

    def read() -> list[FrameworkMemory]:
        samples = []
        for rank, device in devices.items():
            stats = torch.cuda.memory_stats(device)
            # Profiling begins it anew.
            peaks[rank] = max(peaks.get(rank, 0), stats.get("allocated_bytes.all.peak", 0))
            samples.append(
                FrameworkMemory(
                    rank=rank,
                    used_bytes=stats.get("allocated_bytes.all.current"),
                    peak_bytes=peaks[rank] or None,
                    reserved_bytes=stats.get("reserved_bytes.all.current"),
                )
            )
        return samples

    report.memory = read


def set_arithmetic(config: RunConfig, report: Reporter) -> None:
    """Sets the arithmetic of float32, and how the losses of many steps are converted: by one copy to the host."""
    torch.backends.cudnn.allow_tf32 = config.precision != "float32"
    torch.set_float32_matmul_precision("highest" if config.precision == "float32" else "high")
    # Times cuDNN's algorithms on the first batch of a shape, and keeps the fastest. The next launch may find another
    # faster: a GPU's last bits are not promised, the CPU's are.
    torch.backends.cudnn.benchmark = config.platform == "cuda"
    report.convert = lambda losses: torch.stack(losses).tolist()


def steps_in_flight(device: torch.device, loss_scale: LossScale) -> dict[str, Any]:
    """Returns how `training` waits for steps: on a GPU, where calls return before they are computed; not on the CPU."""
    waits = {"mark": record, "wait": torch.cuda.Event.synchronize} if device.type == "cuda" else {}
    return {**waits, "loss_scale": loss_scale.read}


def record(loss: Tensor) -> torch.cuda.Event:
    """Returns an event after all that its device was given so far: with a process group also the gradients' all-reduce.

    Blocking: who waits for it sleeps, and leaves the core to the threads that read batches and send reports.
    """
    event = torch.cuda.Event(blocking=True)
    event.record(torch.cuda.current_stream(loss.device))
    return event


def autocast(config: RunConfig, device: torch.device) -> AbstractContextManager[object]:
    """Returns the context of the forward pass: operations that benefit use half the bits, if configured."""
    return torch.autocast(device.type, HALVES[config.precision]) if config.precision in HALVES else nullcontext()


def connect(config: RunConfig, rank: int, device: torch.device, report: Reporter) -> None:
    """Joins the process group; has its collectives told in a hang."""
    if device.type == "cuda":
        report.phase("connecting")
    join(rank, config.devices, device, nccl_timeout(config))
    report.collectives = collectives
    if device.type == "cuda":
        meet(device)
        report.phase("preparing")


def meet(device: torch.device) -> None:
    """Makes a first collective, with which NCCL connects some of its ways, and waits for it."""
    dist.all_reduce(torch.zeros(1, device=device))
    torch.cuda.synchronize(device)


def join(rank: int, world_size: int, device: torch.device, nccl_timeout: timedelta) -> None:
    """Joins the process group.

    Rank 0 serves the rendezvous on a socket bound before any rank started: no other process can take the port
    in between.
    """
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    listener = int(os.environ["TUIAPP_STORE_FD"]) if rank == 0 else None
    store = dist.TCPStore(  # type: ignore[attr-defined]
        address, port, world_size, is_master=rank == 0, master_listen_fd=listener
    )
    on_gpu = device.type == "cuda"
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        store=store,
        rank=rank,
        world_size=world_size,
        device_id=device if on_gpu else None,
        timeout=nccl_timeout if on_gpu else None,
    )


def nccl_timeout(config: RunConfig) -> timedelta:
    """Returns how long a rank waits for the others in a collective, before NCCL ends it, and the run.

    By default ten minutes, in which one rank may still compile, or read. A hang is reported long before, with what each
    rank waits for, and a node that does not answer is given up: this ends what nobody looks at.
    """
    return timedelta(seconds=2 * max(*PHASE_LIMITS_S.values(), hang_limit_s(), config.node_grace_s))


def build_optimizer(config: RunConfig, model: nn.Module) -> torch.optim.Optimizer:
    """Returns the optimizer, with PyTorch's conventions.

    Fused: one pass over parameter, gradient and state instead of one per operation, with the same result up to
    rounding. Adadelta has no fused implementation, and SGD none for DTensors.
    """
    # Of what is frozen it keeps nothing.
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    rate, decay = config.learning_rate, config.weight_decay
    match config.optimizer:
        case "sgd":
            momentum, nesterov = config.momentum, config.nesterov
            fused = not any(isinstance(parameter, DTensor) for parameter in parameters)
            return torch.optim.SGD(parameters, rate, momentum, weight_decay=decay, nesterov=nesterov, fused=fused)
        case "adam":
            return torch.optim.Adam(parameters, rate, weight_decay=decay, fused=True)
        case "adamw":
            return torch.optim.AdamW(parameters, rate, weight_decay=decay, fused=True)
        case "adadelta":
            return torch.optim.Adadelta(parameters, rate, weight_decay=decay)
    raise ValueError(config.optimizer)


def update(
    config: RunConfig, model: nn.Module, optimizer: torch.optim.Optimizer, rate: float, scale: LossScale
) -> Tensor | None:
    """Updates with the present gradients, clipped to `gradient_clip` in their global norm.

    They are already averaged over the devices, so every rank clips by the same norm. Returns the norm before clipping,
    float32 [] on the device; None without clipping. Gradients that overflow in float16 make no update.
    """
    norm = None
    if config.gradient_clip:
        scale.unscale_(optimizer)
        # By max_norm / (norm + 1e-6), where Optax divides by the norm alone: 1e-6 less at a norm of 1.
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.gradient_clip)
    for group in optimizer.param_groups:
        group["lr"] = rate
    scale.step(optimizer)
    scale.update()
    return norm


def backward(
    loss_of: Callable[[Tensor, Tensor], Tensor],
    x: Tensor,
    y: Tensor,
    parts: int,
    scale: LossScale,
    ddp: nn.Module | None = None,
    weight: float = 1.0,
) -> Tensor:
    """Adds the gradients of a rank's batch, taken in equal `parts` one after the other, to those of its parameters.

    `loss_of` gives the mean loss of images and labels. Ranks in `ddp` exchange gradients once, with the last part;
    those of this one count `weight` times in their mean. Returns the batch's mean loss, float32 [] on the device.
    """
    total = None
    for number, part in enumerate(zip(x.chunk(parts), y.chunk(parts), strict=True), start=1):
        with ddp.no_sync() if isinstance(ddp, DistributedDataParallel) and number < parts else nullcontext():
            loss = loss_of(*part)
            if parts > 1:
                loss = loss / parts
            scale.scale(loss if weight == 1 else loss * weight).backward()
        total = loss.detach() if total is None else total + loss.detach()
    assert total is not None
    return total


def memory_format(config: RunConfig, device: torch.device) -> torch.memory_format:
    """Returns the memory format of images and convolution weights: channels last where it is faster.

    The tensor cores of GPUs prefer it in tf32 and bfloat16
    (https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html). On the CPU a step of `net` would take
    30 % less, but BatchNorm then sums in float32: with an error of 5e-6, not 5e-8, in its statistics, and two ranks no
    longer have the curve of one.
    """
    on_tensor_cores = device.type == "cuda" and config.precision != "float32"
    return torch.channels_last if on_tensor_cores else torch.contiguous_format


def build_model(plan: Plan, device: torch.device) -> nn.Module:
    """Returns the model on the device; the same seed gives the same weights on any device."""
    config, data = plan.config, plan.data
    torch.manual_seed(config.seed)
    model = torch_models.build(config.model, data.input_shape, data.classes)
    # The type stubs of `to` lack the option.
    placed: nn.Module = model.to(device, memory_format=memory_format(config, device))  # type: ignore[call-overload]
    return placed


Draws: TypeAlias = Mapping[str, Tensor]
"""What is drawn for the examples of a batch; see `augmentation.draws`."""

NOTHING_DRAWN: Draws = {}


class ToFloats:
    """Images as float32, uint8 scaled to 0–1, normalized if wanted: [N, C, H, W] in `layout`; None: [N, H, W, C]."""

    def __init__(self, device: torch.device, layout: torch.memory_format | None, by: Normalization | None) -> None:
        self._layout = layout
        shape = (-1,) if layout is None else (-1, 1, 1)
        both = (by.mean, by.std) if by else ()
        self._by = [torch.tensor(values, dtype=torch.float32, device=device).reshape(shape) for values in both]

    def __call__(self, x: Tensor, draws: Draws = NOTHING_DRAWN) -> Tensor:
        if "flip" in draws:
            x = change(x, draws) if self._layout is None else change(x.permute(0, 2, 3, 1), draws).permute(0, 3, 1, 2)
        if self._layout is not None:
            x = x.contiguous(memory_format=self._layout)
        x = x.float().div_(255) if x.dtype == torch.uint8 else x
        if not self._by:
            return x
        mean, std = self._by
        return (x - mean).div_(std)


class Images:
    """A data set's images, on a device in the type of the file: bytes as float32 would take four times the memory.

    From [N, H, W, C], uint8 or float32, to batches [N, C, H, W] in `layout`; None: [N, H, W, C].
    """

    def __init__(
        self,
        images: datasets.Images,
        device: torch.device,
        layout: torch.memory_format | None,
        normalization: Normalization | None = None,
    ) -> None:
        stored = torch.from_numpy(images).to(device)
        # With one channel the strides of the whole determine those of the batches, and these the kernels.
        stored = stored if layout is None else stored.permute(0, 3, 1, 2)
        if not images.flags.c_contiguous:
            # A rank's part, which must not keep all images in memory.
            as_floats = layout or torch.contiguous_format
            stored = stored.clone() if stored.dtype == torch.uint8 else stored.contiguous(memory_format=as_floats)
        self._stored = stored
        self._to_floats = ToFloats(device, layout, normalization)

    def __len__(self) -> int:
        return len(self._stored)

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        return self._to_floats(self._stored[rows])

    def augmented(self, rows: Tensor, draws: Draws) -> Tensor:
        return self._to_floats(self._stored[rows], draws)


class Windows:
    """Windows of a text on a device, uint8 [N, context], to batches of tokens, int64 [N, context]."""

    def __init__(self, tokens: datasets.Images, device: torch.device) -> None:
        # A rank's part must not keep all of them in memory.
        self._stored = torch.from_numpy(np.ascontiguousarray(tokens)).to(device)

    def __len__(self) -> int:
        return len(self._stored)

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        return self._stored[rows].long()


class Streamed:
    """`Images` that are read when they are indexed: none is kept on the device."""

    def __init__(
        self,
        images: StoredImages,
        device: torch.device,
        layout: torch.memory_format | None,
        normalization: Normalization | None = None,
    ) -> None:
        self._images, self._layout = images, layout
        self._to_floats = ToFloats(device, layout, normalization)
        self._copies = Copies(images, device) if device.type == "cuda" else None

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        return self.move(self.read(rows if isinstance(rows, slice) else rows.numpy(force=True)))

    def read(self, rows: datasets.Rows | slice) -> Tensor | Filled:
        """Returns images [n, H, W, C] on the host, for `move`."""
        return self._copies.read(rows) if self._copies else torch.from_numpy(self._images[rows])

    def move(self, read: Tensor | Filled, draws: Draws = NOTHING_DRAWN) -> Tensor:
        """Returns what `read` gave, on the device as `Images` has it, augmented."""
        x = self._copies.move(read) if self._copies and isinstance(read, Filled) else read
        assert isinstance(x, Tensor)
        return self._to_floats(x if self._layout is None else x.permute(0, 3, 1, 2), draws)


Examples: TypeAlias = Images | Windows | Streamed


class Placed(NamedTuple):
    """What a step takes, for `TrainingSet.batch`."""

    rows: Tensor
    """The examples' numbers, int64 [batch]."""
    taken: Tensor
    """The examples' numbers, or [batch, 2] with each example's partner in a mixture."""
    read: Tensor | Filled | None
    """The images of `taken` on the host, if they are read."""
    draws: Draws


class TrainingSet:
    """Batches of the training set: indexed on the device, where all of it lies, or read ahead from where it is."""

    def __init__(
        self,
        images: datasets.Images | StoredImages,
        labels: datasets.Labels,
        device: torch.device,
        layout: torch.memory_format | None = None,
        normalization: Normalization | None = None,
        *,
        classes: int,
    ) -> None:
        self._device, self._classes = device, classes
        self._images, self._labels = to_device(images, labels, device, layout, normalization)

    def place(self, order: augmentation.Order) -> Iterable[Placed]:
        """Returns what `batch` takes for each step, given example numbers, [steps, batch].

        The numbers are on the device, moved at once and not step by step; images that are read are on the host.
        """
        numbers = augmentation.examples(order)
        taken = self._by_step(numbers)
        rows = taken if order.ndim == numbers.ndim else [pairs[:, 0] for pairs in taken]
        drawn = {name: self._by_step(values) for name, values in augmentation.draws(order).items()}
        draws: Iterable[Draws] = repeat(NOTHING_DRAWN)
        if drawn:
            draws = (dict(zip(drawn, values, strict=True)) for values in zip(*drawn.values(), strict=True))
        read: Iterable[Tensor | Filled | None] = repeat(None)
        if isinstance(self._images, Streamed):
            read = prefetch(map(np.ravel, numbers), self._images.read)
        return map(Placed, rows, taken, read, draws)

    def _by_step(self, values: npt.NDArray[Any]) -> Sequence[Tensor]:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self._device).unbind()

    def batch(self, placed: Placed) -> tuple[Tensor, Tensor]:
        """Returns images, float32, or tokens, and int64 labels on the device; of mixtures float32 [batch, classes]."""
        images, taken, draws = self._images, placed.taken.flatten(), placed.draws
        y = self._labels[placed.taken].long()
        if placed.read is not None and isinstance(images, Streamed):
            x = images.move(placed.read, draws)
        elif draws and isinstance(images, Images):
            x = images.augmented(taken, draws)
        else:
            x = images[taken]
        return mix(x, y, draws["weight"], self._classes) if "weight" in draws else (x, y)

    def first(self, count: int) -> tuple[Tensor, Tensor]:
        """Returns a batch of the first examples, as they are."""
        rows = torch.arange(count, device=self._device)
        return self.batch(Placed(rows, rows, None, NOTHING_DRAWN))


def open_data(
    plan: Plan, rank: int, device: torch.device, layout: torch.memory_format | None = None
) -> tuple[TrainingSet, Examples, Tensor]:
    """Returns the training set, and a rank's part of the test set, images and labels: rank r of N has r, r + N, ….

    What fits lives on the device whole: a step then indexes, and copies nothing from the host. Images in a `layout` are
    normalized; those that Keras takes its model normalizes.
    """
    arrays, part = datasets.open_planned(plan), slice(rank, None, plan.config.devices)
    normalization = plan.normalization if layout is not None else None
    how = device, layout, normalization
    training_set = TrainingSet(arrays.x_train, arrays.y_train, *how, classes=plan.data.classes)
    x_test, y_test = datasets.part(arrays.x_test, part), arrays.y_test[part]
    return training_set, *to_device(x_test, y_test, *how)


def to_device(
    images: datasets.Images | StoredImages,
    labels: datasets.Labels,
    device: torch.device,
    layout: torch.memory_format | None = None,
    normalization: Normalization | None = None,
) -> tuple[Examples, Tensor]:
    """Returns `Images` or `Windows` on the device, or `Streamed` images; and labels on the device, as stored."""
    how = device, layout, normalization
    kind: Examples
    if isinstance(images, StoredImages):
        kind = Streamed(images, *how)
    else:
        kind = Windows(images, device) if images.ndim == 2 else Images(images, *how)
    return kind, torch.from_numpy(labels).to(device)


def distribute(model: nn.Module) -> nn.Module:
    """Wraps the model in DDP, which leaves BatchNorm's running statistics to each rank; a rank alone needs none."""
    if dist.get_world_size() == 1:
        return model
    # PyTorch 2.13 renamed the option.
    new, old = "forward_sync_buffers", "broadcast_buffers"
    how: dict[str, Any] = {new if new in signature(DistributedDataParallel).parameters else old: False}
    if next(model.parameters()).device.type == "cpu" and dist.get_world_size() > 2:
        # After its first backward pass DDP divides the gradients into buckets anew, in which gloo adds up those of
        # three ranks or more in another order: a resumed run would differ in its first step. This keeps the buckets.
        how["find_unused_parameters"] = True
    return DistributedDataParallel(model, gradient_as_bucket_view=True, **how)


def average_statistics(model: nn.Module, world_size: int, weight: float = 1.0) -> None:
    """Gives every replica the mean of all replicas' BatchNorm statistics, in which this one's count `weight` times."""
    floats = {name: buffer for name, buffer in model.named_buffers() if buffer.is_floating_point()}
    for buffers in by_type(floats):
        # One collective, where each of ResNet-18's 40 would wait for the ranks by itself.
        joined = flatten(buffers.values()) * weight
        dist.all_reduce(joined)
        joined /= world_size
        means = joined.split([buffer.numel() for buffer in buffers.values()])
        for buffer, mean in zip(buffers.values(), means, strict=True):
            buffer.copy_(mean.view_as(buffer))


@torch.no_grad()
def sum_up(
    model: Callable[[Tensor], Tensor],
    x: Examples,
    y: Tensor,
    classes: int,
    context: AbstractContextManager[object],
    losses_of: Losses,
    part: tuple[int, int] = (0, 1),
    *,
    at_once: int,
) -> Tensor:
    """Returns sums over a part of the test set, of a model in evaluation mode: see `tuiapp.trainers.rank.evaluation`.

    It takes so many examples at a time.

    Part (r, N), with examples `x` and labels `y`, has examples r, r + N, r + 2N … of the test set. The result is on the
    labels' device, with zeros for the worst labels of the other parts.
    """
    rank, world_size = part
    width, labels = columns(classes), prod(y.shape[1:])
    by_example, y = y.long(), y.long().flatten()
    losses, predicted = torch.empty(len(y), device=y.device), torch.empty_like(y)
    totals = torch.zeros(len(losses_of.own.figures), dtype=torch.float64, device=y.device)
    for start in range(0, len(x), at_once):
        with context:
            logits = model(x[start : start + at_once])
        rows = slice(start * labels, (start + at_once) * labels)
        both = logits.float(), by_example[start : start + at_once]
        losses[rows] = losses_of.each(*both)
        predicted[rows] = logits.flatten(0, -2).argmax(1)
        totals += losses_of.figures(*both)
    # Once and not batch by batch: with a small model these are a large part of the work.
    places = predicted if width == classes else (predicted != y).long()
    counts = torch.bincount(y * width + places, minlength=classes * width)
    highest, indices = losses.topk(min(WORST, len(losses)))
    numbers = (rank + world_size * (indices // labels)) * labels + indices % labels
    worst = torch.zeros((world_size, WORST, 4), dtype=torch.float64, device=y.device)
    worst[rank, : len(indices)] = torch.stack([highest.double(), numbers, y[indices], predicted[indices]], 1)
    return torch.cat([losses.sum(dtype=torch.float64).reshape(1), totals, counts, worst.flatten()])


def predictor(model: nn.Module, device: torch.device, context: AbstractContextManager[object]) -> Predict:
    """Returns the model as a task asks it: tokens, uint8 [n, context], to logits, float32 [n, context, classes]."""

    @torch.no_grad()
    def predict(tokens: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        model.eval()
        with context:
            logits = model(torch.from_numpy(tokens).to(device).long())
        model.train()
        array: npt.NDArray[np.float32] = logits.float().numpy(force=True)
        return array

    return predict


def evaluate(
    model: nn.Module,
    x: Examples,
    y: Tensor,
    plan: Plan,
    context: AbstractContextManager[object],
    losses_of: Losses,
) -> Sums:
    """Returns sums over the test set, of which each rank has a part: see `sum_up`."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    average_statistics(model, world_size, plan.weight_of(rank))
    model.eval()
    part, at_once = (rank, world_size), batch_size(plan)
    sums = sum_up(model, x, y, plan.data.classes, context, losses_of, part, at_once=at_once)
    model.train()
    dist.all_reduce(sums)
    return sums.numpy(force=True)


def report_array(
    report: Reporter,
    name: str,
    local: Tensor,
    rank: int,
    mesh: Mapping[str, int],
    split: tuple[Tensor, datasets.Rows] | None = None,
) -> None:
    """Reports this rank's part of an array, on a mesh of axis → ranks along it.

    For an array of a global batch, `split` has this rank's example numbers, int64 [local batch], and all, int64 [global
    batch]: the positions of the former give the rank's part. None: the array is whole here, or a DTensor, which knows
    its mesh.
    """
    if isinstance(local, DTensor):
        report.send(layout(name, local, rank))
        return
    full = [(0, size) for size in local.shape]
    spec: list[str | None] = [None] * local.dim()
    blocks, shape = [full], list(local.shape)
    if split:
        taken, examples = split
        places = np.flatnonzero(np.isin(examples, taken.numpy(force=True)))
        runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
        blocks = [[(int(run[0]), int(run[-1]) + 1), *full[1:]] for run in runs]
        shape[0], spec[0] = len(examples), next(iter(mesh))
    shards = [
        Shard(
            rank=rank,
            device=str(local.device),
            index=block,
            bytes=prod(stop - start for start, stop in block) * local.element_size(),
        )
        for block in blocks
    ]
    dtype = str(local.dtype).removeprefix("torch.")
    report.send(Sharding(array=name, shape=shape, dtype=dtype, mesh=dict(mesh), spec=spec, shards=shards))


def report_sharding(
    report: Reporter,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: tuple[Tensor, Tensor],
    rank: int,
    split: tuple[Tensor, datasets.Rows],
) -> None:
    """Reports the layout of the last step's arrays over the ranks: batch, labels, a parameter, its optimizer state."""
    mesh = {"batch": dist.get_world_size()}
    for name, part in zip(("batch", "labels"), batch, strict=True):
        report_array(report, name, part, rank, mesh, split)
    report_largest(report, model, optimizer, rank, mesh)


def report_largest(
    report: Reporter, model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, mesh: Mapping[str, int]
) -> None:
    """Reports the largest parameter and its optimizer state: whole on their devices."""
    name, largest = max(model.named_parameters(), key=lambda item: item[1].numel())
    report_array(report, f"parameter {name}", largest, rank, mesh)
    for key, value in optimizer.state.get(largest, {}).items():
        if isinstance(value, Tensor) and value.shape == largest.shape:
            report_array(report, f"optimizer {key} of {name}", value, rank, mesh)
