"""Profile: where the time of a live run's next steps goes."""

from __future__ import annotations

from tuiapp.actions.action import Outcome
from tuiapp.actions.command import request
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.contract.rundir import RunDir


def refusal(status: str, backend: str) -> str:
    """Says why the next steps of a run of a status and a backend cannot be profiled; "" if they can."""
    entry = BACKENDS.get(backend)
    if status not in ("starting", "running"):
        return "Only the steps of a run that trains can be profiled."
    if not backend:
        why = "it has not begun"
    elif entry is None or not entry.builtin:
        why = "a script's steps are profiled by its own framework, as torch.profiler or jax.profiler"
    else:
        why = "" if entry.profiler else f"{backend} has no profiler here"
    return f"No step can be profiled: {why}." if why else ""


def do(run: RunDir, steps: int) -> Outcome:
    """Has the next steps profiled; the run reports what came of it."""
    return request([run], "profile", steps)
