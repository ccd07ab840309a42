"""The checks, in the order in which they run: what matters most comes first, in case the time runs out."""

from __future__ import annotations

from tests.gpu.runner import Check

CHECKS = (
    Check(
        "devices",
        "`devices` and `doctor` say what nvidia-smi says",
        "tests.gpu.devices:as_nvidia_smi",
        takes_s=8,
        limit_s=60,
    ),
    Check(
        "quickstart",
        "every backend learns the digits on the GPU it was given, and gives its memory back",
        "tests.gpu.training:quickstart",
        takes_s=90,
        limit_s=180,
    ),
    Check(
        "same",
        "the same seed gives the same losses on the CPU and on the GPU",
        "tests.gpu.training:same_on_both",
        takes_s=35,
        limit_s=90,
        on_cpu="compares a GPU with the CPU",
    ),
    Check(
        "visible",
        "CUDA_VISIBLE_DEVICES is the set to choose from",
        "tests.gpu.devices:visible",
        takes_s=12,
        limit_s=60,
    ),
    Check(
        "memory",
        "beside a process that holds half of the memory JAX trains, or is refused before the launch",
        "tests.gpu.memory:half_held",
        takes_s=20,
        limit_s=60,
        on_cpu="fills a GPU's memory",
    ),
    Check(
        "endings",
        "checkpoint, stop, resume, kill -9: memory is free again within 5 s",
        "tests.gpu.endings:endings",
        takes_s=35,
        limit_s=90,
    ),
    Check(
        "clock",
        "steps, evaluations and checkpoints add up to the wall clock",
        "tests.gpu.speed:clock",
        takes_s=20,
        limit_s=90,
    ),
    Check(
        "speed",
        "ResNet-18 as fast as a bare loop, in each precision, with the MFU that is shown",
        "tests.gpu.speed:beside_bare",
        takes_s=130,
        limit_s=220,
    ),
    Check(
        "energy",
        "energy is the driver's counter, and the sampler takes less than 1 % of a core",
        "tests.gpu.energy:energy",
        takes_s=22,
        limit_s=60,
    ),
    Check(
        "streamed",
        "images read batch by batch train as fast as those in memory",
        "tests.gpu.speed:streamed",
        takes_s=35,
        limit_s=90,
    ),
    Check(
        "dashboard",
        "the dashboard in a terminal while it trains",
        "tests.gpu.pictures:dashboard",
        takes_s=20,
        limit_s=90,
    ),
    Check(
        "several",
        "on several devices: the losses of one, weights split over a mesh, scaling, and the end of a rank",
        "tests.gpu.several:several",
        takes_s=50,
        limit_s=150,
        gpus=2,
    ),
    Check(
        "profile",
        "steps are profiled while training goes on",
        "tests.gpu.profiles:profiles",
        takes_s=12,
        limit_s=90,
    ),
    Check(
        "bandwidth",
        "all-reduces between GPUs come to no more than their links can do",
        "tests.gpu.several:bandwidth",
        takes_s=25,
        limit_s=90,
        gpus=2,
    ),
    Check(
        "compile",
        "compile and sync_batch_norm change no loss",
        "tests.gpu.training:compile_and_sync",
        takes_s=30,
        limit_s=120,
    ),
    Check(
        "trainers",
        "transformers and Lightning report, on the GPU",
        "tests.gpu.trainers_of_others:report",
        takes_s=16,
        limit_s=90,
    ),
)
