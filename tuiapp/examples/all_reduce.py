"""All-reduces of 1 KiB to 1 GiB on each of a run's devices: the seconds that one takes, by the array's bytes.

tuiapp run all_reduce.py --set devices=2                                      PyTorch: NCCL, or gloo on the CPU
tuiapp run all_reduce.py --set devices=2 --set processes=one -- --framework jax --devices 2

Each size is four times the one before. Those that would not fit into memory, or into the time, are left out.
"""

import argparse
import os
from collections.abc import Callable
from time import monotonic

import tuiapp
from tuiapp.trainers.state.text import format_bytes

SIZES = tuple(1024 * 4**power for power in range(11))
REPEAT_S, MOST_CALLS = 0.5, 1000
"""How long, and how often at most, each size is repeated."""
MEMORY_SHARE = 4
"""Part of the free memory that an array may take: input, output, and what the exchange itself needs."""


def main(framework: str, devices: int, seconds: float) -> None:
    library, free_bytes, time_of = (with_torch if framework == "torch" else with_jax)(devices)
    run = tuiapp.init()
    run.summary["library"] = library
    left_out = run_sizes(time_of, free_bytes // MEMORY_SHARE, seconds, run.should_stop, tuiapp.log)
    if left_out:
        run.summary["left out"] = left_out
    tuiapp.finish()
    if framework == "torch":
        from torch import distributed

        # Without it some processes abort as they exit.
        distributed.destroy_process_group()


def run_sizes(
    time_of: Callable[[int, int], float],
    most_bytes: int,
    seconds: float,
    should_stop: Callable[[], bool],
    log: Callable[[dict[str, float], int], object],
) -> str:
    """Measures one size after the other, and returns which are left out and why.

    `time_of` takes bytes and calls, makes so many all-reduces of an array of so many bytes on each device, and returns
    how long they took on the slowest: every process that takes part decides alike.
    """
    spent, once = 0.0, 0.0
    for step, size in enumerate(SIZES, 1):
        # Four times as long as the size before: once to warm up, once to find out how often, and then repeated.
        expected = 8 * once + max(REPEAT_S, 4 * once)
        if size > most_bytes:
            return f"{format_bytes(size)} and more do not fit into the memory that is free"
        if spent + expected > seconds:
            return f"{format_bytes(size)} and more would take longer than the {seconds:g} s that all may take"
        if should_stop():
            return f"{format_bytes(size)} and more were not measured: the run was stopped"
        first, once = time_of(size, 1), time_of(size, 1)
        calls = max(1, min(MOST_CALLS, int(REPEAT_S / once) if once else MOST_CALLS))
        took = time_of(size, calls)
        spent += first + once + took
        log({"bytes": size, "seconds": took / calls}, step)
    return ""


def free_on_host() -> int:
    """Returns the bytes of the host's memory that nothing uses, caches included."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def with_torch(_: int) -> tuple[str, int, Callable[[int, int], float]]:
    """Joins the processes of the run: one per device."""
    import torch
    import torch.distributed as dist

    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    free = torch.cuda.mem_get_info()[0] if cuda else free_on_host() // dist.get_world_size()
    least = torch.tensor(free, device=device)
    dist.all_reduce(least, dist.ReduceOp.MIN)

    def time_of(size: int, calls: int) -> float:
        array = torch.zeros(size // 4, device=device)
        if cuda:
            torch.cuda.synchronize()
        began = monotonic()
        for _ in range(calls):
            dist.all_reduce(array)
        if cuda:
            torch.cuda.synchronize()
        took = torch.tensor(monotonic() - began, dtype=torch.float64, device=device)
        dist.all_reduce(took, dist.ReduceOp.MAX)
        return took.item()

    return dist.get_backend(), int(least.item()), time_of


def with_jax(devices: int) -> tuple[str, int, Callable[[int, int], float]]:
    """Takes all devices that this process sees; of the CPU `devices` are made."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import AxisType, NamedSharding
    from jax.sharding import PartitionSpec as P

    if not os.environ.get("CUDA_VISIBLE_DEVICES"):
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", devices)
    mesh = jax.make_mesh((jax.local_device_count(),), ("batch",), axis_types=(AxisType.Auto,))
    all_reduce = jax.jit(
        jax.shard_map(lambda part: jax.lax.psum(part, "batch"), mesh=mesh, in_specs=P("batch"), out_specs=P("batch"),
                      check_vma=False)
    )  # fmt: skip
    free = free_on_host() // mesh.size
    if all(stats := [device.memory_stats() for device in jax.local_devices()]):
        free = min(of_one["bytes_limit"] - of_one["bytes_in_use"] for of_one in stats)

    def time_of(size: int, calls: int) -> float:
        array = jnp.zeros((mesh.size, size // 4), jnp.float32, device=NamedSharding(mesh, P("batch")))
        # Compiles for the shape.
        all_reduce(array).block_until_ready()
        began = monotonic()
        for _ in range(calls):
            # Several collectives in flight on the CPU's devices may wait for each other for ever.
            array = all_reduce(array).block_until_ready()
        return monotonic() - began

    return "xla", free, time_of


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--framework", choices=("torch", "jax"), default="torch")
    parser.add_argument("--devices", type=int, default=2, help="of the CPU, with JAX")
    parser.add_argument("--seconds", type=float, default=60.0, help="that all sizes may take together")
    main(**vars(parser.parse_args()))
