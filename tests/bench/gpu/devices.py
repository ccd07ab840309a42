"""What the program says of the GPUs, and which of them it takes."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from tests.bench.gpu import smi
from tests.bench.gpu.box import Box
from tests.kit.harness import Watched
from tuiapp.trainers.contract.events import RankStarted
from tuiapp.trainers.contract.rundir import RunDir

SHORT = ("model=mlp", "max_steps=5", "devices=1", "checkpoint_every=0")


def as_nvidia_smi(box: Box) -> None:
    rows = [] if box.on_cpu else smi.ask()
    told, examined = box.tuiapp("devices", "--json"), box.tuiapp("doctor", "--json")
    box.find.holds("devices answers", told.returncode == 0, told.stderr.strip()[-300:])
    shown = json.loads(told.stdout)
    findings = {one["name"]: one for one in json.loads(examined.stdout)}
    cores, memory = len(os.sched_getaffinity(0)), psutil.virtual_memory().total
    box.find.holds("cores of the host", shown["host"]["cpu_cores"] == cores, shown["host"]["cpu_cores"])
    box.find.at_most("memory of the host, difference", abs(shown["host"]["memory_total_bytes"] / memory - 1), 0.01)
    bad = [f"{one['name']}: {one['detail']}" for one in findings.values() if one["status"] == "fail"]
    box.find.holds("doctor finds nothing that fails", not bad, "; ".join(bad))
    for name, one in findings.items():
        if one["status"] == "warn":
            box.find.note(f"doctor warns of {name}", one["detail"])
    if box.on_cpu:
        return
    if not rows:
        box.find.note("nvidia-smi no longer answers: the GPUs are not compared")
        return
    gpus = {gpu["uuid"]: gpu for gpu in shown["gpus"]}
    wanted = {row["uuid"] for row in rows}
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        box.find.holds("the GPUs are among nvidia-smi's", gpus and gpus.keys() <= wanted, ", ".join(gpus))
    else:
        box.find.holds("the GPUs are nvidia-smi's", gpus.keys() == wanted, f"{len(gpus)} of {len(wanted)}")
    for row in rows:
        if row["uuid"] in gpus:
            detail = findings.get(f"GPU {row['index']}", {}).get("detail", "")
            compare(box, row, gpus[row["uuid"]], detail)


def compare(box: Box, row: dict[str, str], gpu: dict[str, Any], detail: str) -> None:
    """Holds one GPU's figures against nvidia-smi's, which were asked a few seconds earlier."""
    name = f"GPU {row['index']}"
    box.find.holds(f"{name}: index, name", (str(gpu["index"]), gpu["name"]) == (row["index"], row["name"]), gpu["name"])
    if row["uuid"] in box.gpus:
        # It tells of those that runs may have.
        in_doctor = all(word in detail for word in (row["name"], row["uuid"], row["driver_version"]))
        box.find.holds(f"{name}: doctor has name, UUID and driver", in_doctor, detail)
    total, used, reserved = (smi.number(row[f"memory.{part}"]) for part in ("total", "used", "reserved"))
    near(box, f"{name}: memory, MiB", in_mib(gpu["memory_total_bytes"]), total, 0.01 * (total or 0))
    # NVML's older figure, which the program shows, counts what the driver keeps for itself.
    shown = in_mib(gpu["memory_used_bytes"])
    if used is not None and shown is not None and shown > used:
        used = min(shown, used + (reserved or 0))
    near(box, f"{name}: memory in use, MiB", shown, used, 64)
    near(box, f"{name}: power limit, W", gpu["power_limit_w"], smi.number(row["enforced.power.limit"]), 1)
    near(box, f"{name}: temperature, °C", gpu["temperature_c"], smi.number(row["temperature.gpu"]), 8)
    near(box, f"{name}: power, W", gpu["power_w"], smi.number(row["power.draw"]), 60)
    near(box, f"{name}: utilization, %", gpu["utilization_percent"], smi.number(row["utilization.gpu"]), 30)


def near(box: Box, what: str, shown: float | None, wanted: float | None, most: float) -> None:
    """Holds a figure against nvidia-smi's, if that tells it."""
    if wanted is None:
        box.find.note(f"{what}: nvidia-smi does not tell it", shown)
    else:
        is_near = shown is not None and abs(shown - wanted) <= most
        box.find.holds(what, is_near, f"{shown} beside {wanted} (±{most:g})")


def in_mib(size: float | None) -> float | None:
    return None if size is None else size / smi.MIB


def visible(box: Box) -> None:
    """By index, by UUID, and hidden: what the runs say that they train on."""
    asked = {"hidden": ("", "auto"), "hidden, but wanted": ("", "cuda")}
    uuid = "" if box.on_cpu else box.gpus[-1]
    if uuid:
        index = next(row["index"] for row in smi.ask() if row["uuid"] == uuid)
        asked |= {"index": (index, "cuda"), "UUID": (uuid, "cuda"), "none of that index": ("99", "cuda")}
    with ThreadPoolExecutor() as pool:
        started = dict(zip(asked, pool.map(lambda one: device(box, *one), asked.values()), strict=True))
    for name, found in started.items():
        refused = name in ("hidden, but wanted", "none of that index")
        wanted = "refused" if refused else "cpu" if name == "hidden" else uuid
        box.find.holds(f"{name} (CUDA_VISIBLE_DEVICES={asked[name][0]})", found == wanted, found)


def device(box: Box, visible_devices: str, platform: str) -> str:
    """Trains; returns the UUID of the GPU, "cpu", "refused", or what went wrong."""
    settings = [part for setting in (*SHORT, f"platform={platform}") for part in ("--set", setting)]
    done = box.tuiapp("run", *settings, "--json", "--runs-dir", str(box.runs_dir), CUDA_VISIBLE_DEVICES=visible_devices)
    if done.returncode == 2:
        return "refused"
    if done.returncode:
        return done.stderr.strip()[-300:]
    run = Watched(RunDir(Path(json.loads(done.stdout.splitlines()[-1])["directory"])))
    (started,) = run.of(RankStarted)
    return started.uuid or started.device
