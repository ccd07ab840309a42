"""Tells once of GPUs that wait for their host: it launches kernels, or reads data, more slowly than they compute."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.config.user_code import PY
from tuiapp.trainers.contract.events import Alert
from tuiapp.trainers.state.efficiency import WINDOW_S
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.text import format_percent, format_seconds

IDLE_SHARE = 0.4
"""Evaluations, checkpoints and stragglers leave less."""
WAIT_SHARE = 0.1
"""Share of step time beyond which it is the data that is waited for."""
LONGEST_STEP_S = 0.1
"""The launches of a step take milliseconds: in a longer one they are not what the GPU waits for."""


@dataclass
class HostBound:
    _look_at: float = 0.0
    _trained: bool = False
    """Whether steps were made when it looked last."""

    def poll(self, state: RunState, config: RunConfig, now: float) -> Alert | None:
        """Looks every `WINDOW_S`, until there is something to tell."""
        if now < self._look_at:
            return None
        self._look_at = now + WINDOW_S
        efficiency, step_s = state.meter.efficiency(), state.step_s
        trained, self._trained = self._trained, step_s is not None and state.is_moving
        idle = efficiency.gpu_idle_share
        if not trained or idle is None or idle < IDLE_SHARE or step_s is None or step_s > LONGEST_STEP_S:
            return None
        self._look_at = inf
        text = f"GPUs were idle {format_percent(idle)} of {WINDOW_S:.0f} s, at {format_seconds(step_s)} a step: "
        return Alert(kind="host-bound", severity="info", text=text + _why(config, efficiency.data_wait_share))


def _why(config: RunConfig, waited: float | None) -> str:
    backend = BACKENDS[config.backend]
    if not backend.builtin:
        return "kernels are launched, or data is read, too slowly; try larger batches, torch.compile, CUDA graphs"
    if waited is not None and waited > WAIT_SHARE:
        return f"{format_percent(waited)} of a step is waiting for data"
    tries = ["a larger batch"]
    if "compile" in backend.keys and not (config.compile or config.cuda_graphs):
        tries.append("compile = true")
        if "cuda_graphs" in backend.keys and config.devices == 1 and not config.model.startswith(PY):
            tries.append("cuda_graphs = true")
    return f"the host launches kernels too slowly; try {', '.join(tries)}"
