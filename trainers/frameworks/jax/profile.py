"""What JAX tells of a step: its profile by jax.profiler, for steps that somebody asked for, and its memory."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from jax.profiler import ProfileData

from tuiapp.trainers.config.files import take_from_others
from tuiapp.trainers.contract.events import COMMUNICATION, COPIES, KERNELS, StepMemory
from tuiapp.trainers.rank.reporter import Span, Traced

COLLECTIVE = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "nccl")
COPYING = ("copy", "memcpy", "memset")
ENCLOSING = ("while", "call", "conditional")
"""Operations whose time is that of the operations in them."""


class JaxProfiler:
    """`devices` are this process's, of the ranks from `first` on."""

    def __init__(self, devices: Sequence[jax.Device], first: int) -> None:
        self._devices, self._first = devices, first
        self._directory = Path()
        self._is_kept = True

    def start(self, directory: Path | None) -> None:
        self._is_kept = directory is not None
        if directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="tuiapp-profile-"))
        else:
            # JAX names a trace by second and host: processes that share a directory would mix theirs.
            self._directory = directory / f"rank-{self._first}"
        options = jax.profiler.ProfileOptions()
        # Each call of a Python function would cost as much as a small step.
        options.python_tracer_level = 0
        jax.profiler.start_trace(self._directory, profiler_options=options)

    def stop(self) -> tuple[list[Traced], Path | None]:
        jax.profiler.stop_trace()
        take_from_others(self._directory)
        profiles = sorted(self._directory.glob("plugins/profile/*/*.xplane.pb"))
        spans = self._spans(ProfileData.from_file(str(profiles[-1])))
        traces = sorted(self._directory.glob("plugins/profile/*/*.trace.json.gz"))
        if not self._is_kept:
            shutil.rmtree(self._directory, ignore_errors=True)
        # JAX has no way to begin this peak anew. The CPU tells none.
        peaks = [(device.memory_stats() or {}).get("peak_bytes_in_use") for device in self._devices]
        traced = [
            Traced(self._first + number, on_device, process_peak_bytes=peak)
            for number, (on_device, peak) in enumerate(zip(spans, peaks, strict=True))
        ]
        return traced, traces[-1] if traces and self._is_kept else None

    def _spans(self, profile: ProfileData) -> list[list[Span]]:
        """Returns what each device did: a GPU by what ran on its streams, one of the CPU by XLA's operations."""
        spans: list[list[Span]] = [[] for _ in self._devices]
        # GPUs are numbered as the process sees them, those of the CPU over all processes.
        numbers = {device.id: number for number, device in enumerate(self._devices)}
        for plane in profile.planes:
            name, _, number = plane.name.rpartition(":")
            for line in plane.lines:
                if name == "/device:GPU" and line.name.startswith("Stream"):
                    spans[int(number)] += [_span(event, event.name) for event in line.events]
                elif plane.name == "/host:CPU":
                    for event in line.events:
                        facts = dict(event.stats)
                        operation, device = facts.get("hlo_op"), facts.get("device_ordinal")
                        if operation and device is not None and not operation.startswith(ENCLOSING):
                            spans[numbers[int(device)]].append(_span(event, operation))
        return spans


def step_memory(compiled: jax.stages.Compiled) -> StepMemory | None:
    """Returns what a compiled step takes of each device; None if the platform's compiler does not tell.

    The peak that XLA gives beside these figures is left out: on the CPU it lacks what is temporary.
    """
    try:
        analysis = compiled.memory_analysis()
    except Exception:
        # Which platform has it is not documented, and no run shall fail for it.
        return None
    return analysis and StepMemory(
        arguments=analysis.argument_size_in_bytes,
        outputs=analysis.output_size_in_bytes,
        aliased=analysis.alias_size_in_bytes,
        temporary=analysis.temp_size_in_bytes,
    )


def _span(event: Any, name: str) -> Span:
    start, seconds = event.start_ns / 1e9, event.duration_ns / 1e9
    plain = name.lower()
    if plain.startswith(COLLECTIVE):
        kind = COMMUNICATION
    else:
        kind = COPIES if plain.startswith(COPYING) and "fusion" not in plain else KERNELS
    return Span(name, kind, start, start + seconds, seconds)
