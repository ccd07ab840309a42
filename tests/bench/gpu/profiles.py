"""Where the time of a step on the GPU goes."""

from __future__ import annotations

import gzip

from tests.bench.gpu.box import Box
from tests.bench.gpu.findings import SkipCheck
from tests.bench.gpu.smi import MIB
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import KERNELS, Profile
from tuiapp.trainers.state.messages import describe_profile

STEPS = 10


def profiles(box: Box) -> None:
    able = list(box.able("torch-ddp", "jax-sharding"))
    if not able:
        raise SkipCheck("neither PyTorch nor JAX can train here: see doctor")
    for backend in able:
        with box.find.part(backend), box.endless(backend=backend, model="net") as run:
            run.at_step(STEPS)
            sidecars.send_command(run.run.commands, "profile", STEPS)
            found = run.wait(Profile)
            box.find.note(f"{backend}: {describe_profile(found)}")
            box.find.at_most(f"{backend}: parts of the time are the whole, within s", _rest(found), 1e-6)
            box.find.at_least(f"{backend}: share of kernels", found.spent[KERNELS] / found.seconds, 0.01, ".3f")
            names = [one.name for one in found.largest]
            box.find.holds(f"{backend}: ten operations are named", len(names) == 10, ", ".join(names))
            trace = gzip.decompress((run.run.path / found.trace).read_bytes()).decode()
            box.find.holds(f"{backend}: the trace has the largest", names and names[0] in trace, found.trace)
            if not box.on_cpu and backend == "torch-ddp":
                box.find.at_least(f"{backend}: MiB that arrays took", (found.peak_bytes or 0) / MIB, 1, ".0f")
            if backend == "jax-sharding":
                memory = found.step_memory
                box.find.at_least(f"{backend}: MiB of the compiled step", memory.total / MIB if memory else 0, 1, ".0f")
                if memory and not box.on_cpu:
                    box.find.at_least(f"{backend}: bytes of the state updated in place", memory.aliased, 1, ".0f")
                    peak = (found.process_peak_bytes or 0) / MIB
                    box.find.at_least(f"{backend}: MiB that arrays took", peak, memory.total / MIB / 2, ".0f")
            run.at_step(found.step + 3 * STEPS)


def _rest(found: Profile) -> float:
    return abs(found.seconds - sum(found.spent.values()))
