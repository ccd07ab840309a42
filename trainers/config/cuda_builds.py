"""Whether a framework's build for CUDA fits this machine's driver and GPUs: known before any of it is imported.

Source: https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/ and .../deploy/cuda-compatibility/ for drivers, which
need not be newer within a major version; CUDA 13 has no compilers for GPUs before Turing.
"""

from __future__ import annotations

from tuiapp.trainers.config.machine import Machine

LEAST_DRIVER = {11: 450, 12: 525, 13: 580}
"""CUDA's major version → that of the oldest Linux driver that it runs on."""
LEAST_CAPABILITY = {13: (7, 5)}
"""CUDA's major version → the least compute capability that it has code for."""


def unsuited(what: str, cuda: str, machine: Machine, cure: str) -> str:
    """Why a build cannot use this machine's GPUs; "" if it can, or if that is not known.

    Args:
        what: The package and its version.
        cuda: The version of CUDA that it is built for: "13.0", "12".
        machine: With those GPUs that are to be used.
        cure: What to install in its place.
    """
    major = _major(cuda)
    driver, least = _major(machine.driver or ""), LEAST_DRIVER.get(major or 0)
    if driver is not None and least is not None and driver < least:
        needs = f"{what} is built for CUDA {cuda}, which needs driver {least} or newer; here it is {machine.driver}"
        return f"{needs}: update the driver, or {cure}" if major == max(LEAST_DRIVER) else f"{needs}: update the driver"
    oldest = LEAST_CAPABILITY.get(major or 0, (0, 0))
    for gpu in machine.gpus:
        if gpu.capability is not None and gpu.capability < oldest:
            has = ".".join(map(str, gpu.capability))
            return (
                f"{what} is built for CUDA {cuda}, which has no code for {gpu.name} (compute capability {has}): {cure}"
            )
    return ""


def suits_newest(machine: Machine) -> bool:
    """Whether builds for the newest CUDA can use this machine's GPUs."""
    return not unsuited("", str(max(LEAST_DRIVER)), machine, "")


def _major(version: str) -> int | None:
    first = version.partition(".")[0]
    return int(first) if first.isdecimal() else None
