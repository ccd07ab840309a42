"""Several devices: GPUs over NCCL, or CPU ranks over gloo."""

from __future__ import annotations

import json
import os
import signal
import time

import msgspec

from tests.bench.gpu.box import FREED_S, Box, apart, losses
from tests.bench.gpu.speed import BATCH, EPOCHS, config_of
from tests.kit.harness import Watched
from tuiapp.trainers.config.catalog import backends_with
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import Held, RankFailed

BACKENDS = ("torch-ddp", "jax-sharding", "jax-pmap", "torch-fsdp")

STEPS = 20

LEAST_OF_LINK = 0.3
"""Of what the links can do, for an all-reduce of 1 GiB."""

LEAST_SCALING = 0.7
"""Images per second of all devices, beside those of one times as many, at the same batch for each."""


def several(box: Box) -> None:
    count = len(box.gpus) or 2
    for backend in box.able(*BACKENDS[: 2 if box.on_cpu else None]):
        with box.find.part(backend):
            # Without BatchNorm the global batch's mean gradient is the same however it is split.
            config = {"backend": backend, "model": "mlp", "optimizer": "sgd", "learning_rate": 0.05, "max_steps": STEPS}
            config["global_batch_size"] = 8 * count
            runs = {f"{backend} on {devices}": box.config(devices, **config) for devices in (1, count)}
            # In as many parts as the model's layers divide by.
            parts = count & -count
            if backend in backends_with("mesh") and parts > 1:
                mesh = f"batch={count // parts},model={parts}"
                runs[f"{backend} with {mesh}"] = box.config(count, **config, mesh=mesh)
            one, *others = train(box, backend, runs)
            for run, on in zip(others, (f"on {count}", f"with weights in {parts} parts"), strict=False):
                far = apart(losses(one), losses(run), STEPS)
                box.find.at_most(f"{backend}: loss {on} from that on 1 in {STEPS} steps", far, 1e-4, ".1e")
            if len(others) > 1:
                check_parts(box, backend, others[1], count, parts)
            elif backend == "torch-fsdp" and count > 1:
                check_parts(box, backend, others[0], count, count)
    with box.find.part("kill -9 of a rank"):
        killed_rank(box, count)
    if not box.on_cpu:
        with box.find.part("scaling"):
            scaling(box, count)


def train(box: Box, backend: str, configs: dict[str, RunConfig]) -> list[Watched]:
    """JAX's processes would want the same GPU's memory: they take turns."""
    if "torch" in backend or box.on_cpu:
        return list(box.train_together(configs).values())
    return [box.train_together({name: config})[name] for name, config in configs.items()]


def check_parts(box: Box, backend: str, run: Watched, count: int, parts: int) -> None:
    """Of weights that are split each device has its part, and of the optimizer's state."""
    held = run.of(Held)
    box.find.holds(f"{backend}: every device says what it holds", len(held) == count, len(held))
    share = max(sum(one.held.values()) / sum(one.whole.values()) for one in held)
    box.find.at_most(f"{backend}: of weights and optimizer state on a device", share, 1.1 / parts, ".3f")


def killed_rank(box: Box, count: int) -> None:
    """One rank dies, and the others wait for it in an all-reduce."""
    before = box.used_bytes()
    with box.endless(devices=count, device_ids=box.gpus[:count], model="mlp", global_batch_size=8 * count) as run:
        run.at_step(STEPS)
        killed = time.monotonic()
        os.kill(run.pid(count - 1), signal.SIGKILL)
        end = run.end()
        freed = box.time_until_free(before, [run], killed)
    box.find.holds("a run whose rank is killed has failed", end.status == "failed", end.reason)
    box.find.holds("the rank that was killed is named", end.failed_rank == count - 1, end.failed_rank)
    box.find.holds("its signal is told", any(failed.signal == "SIGKILL" for failed in run.of(RankFailed)))
    box.find.at_most("s until all ranks and their memory are gone", freed, FREED_S, ".2f")


def bandwidth(box: Box) -> None:
    """What the verb says; the losses of `several` say that replicas are equal."""
    where = ["--platform", "cpu"] if box.on_cpu else ["--device-ids", ",".join(box.gpus)]
    for framework in ("torch", "jax"):
        with box.find.part(framework):
            words = ["--bandwidth", "--json", "--seconds", "8", "--framework", framework, *where]
            told = box.tuiapp("devices", *words)
            box.find.holds("it answers", told.returncode == 0, told.stderr.strip()[-300:])
            found = json.loads(told.stdout)
            largest = found["sizes"][-1]
            bus = largest["bus_bytes_per_s"] / 1e9
            box.find.note(f"{found['library']}, {largest['bytes']:,} bytes", f"{bus:.3g} GB/s on the bus")
            if box.on_cpu:
                continue
            limit = (found["link_bytes_per_s"] or 0.0) / 1e9
            box.find.holds("the driver says what the links can do", limit > 0, found["links"])
            box.find.holds("1 GiB is measured", largest["bytes"] == 1 << 30, largest["bytes"])
            box.find.at_least(f"GB/s on the bus, of {limit:.0f}", bus, LEAST_OF_LINK * limit, ".0f")
            # NVLink's switches may add up themselves: less then goes over the links than is counted.
            box.find.at_most(f"GB/s on the bus, of {limit:.0f}", bus, 2 * limit, ".0f")


def scaling(box: Box, count: int) -> None:
    one = config_of(box, "bfloat16")
    many = msgspec.structs.replace(
        one, devices=count, device_ids=box.gpus[:count], global_batch_size=BATCH * count, epochs=EPOCHS["bfloat16"] + 2
    )
    rates = []
    for name, config in (("speed-bfloat16", one), (f"speed-bfloat16-on-{count}", many)):
        rates.append(box.shared(name, config).end().summary.examples_per_second or 0.0)
    what = f"images/s: on 1 {rates[0]:,.0f}, on {count} {rates[1]:,.0f}, of {count} times one"
    box.find.at_least(what, rates[1] / (count * rates[0]), LEAST_SCALING, ".2f")
